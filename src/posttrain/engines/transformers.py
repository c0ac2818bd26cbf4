"""The engine in process: batched decoding with the policy's own Hugging Face model.

Prompts of like length share a batch, padded on the left; the samples of a prompt share one
prefill; rows that are done leave the batch. A row's random numbers depend on the seed and
its place alone, so that neither batch size nor its neighbours change what is drawn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from posttrain.engines.cache import growing_cache
from posttrain.engines.likelihood import (
    Padded,
    Row,
    batches,
    pad_left,
    response_logps,
    run,
    token_logps,
)
from posttrain.engines.sampling import Completion, Sampling
from posttrain.policies import Policy, batch_ids, chat_texts

COMPACT_SHARE = 1 / 16
"""Share of finished rows above which copying the cache costs less than decoding them on."""

LOGITS_BYTES = 256 * 2**20
"""Logits of at most this size stand in memory when likelihoods are measured."""


class TransformersEngine:
    """Decodes with `policy.model`; `batch` is the largest number of rows decoded at once."""

    def __init__(self, policy: Policy, *, batch: int = 512) -> None:
        self.policy = policy
        self.batch = batch
        self.stop_ids = stop_ids(policy)

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        """Draw `sampling.samples` completions of each prompt [P][samples]."""
        prompt_ids = batch_ids(self.policy.tokenizer, chat_texts(self.policy.tokenizer, [*prompts]))
        by_length = sorted(range(len(prompt_ids)), key=lambda p: len(prompt_ids[p]))
        draws_PGT = uniform(len(prompt_ids), sampling)
        found: list[list[Completion]] = [[] for _ in prompts]
        with evaluating(self.policy), torch.no_grad():
            for first in range(0, sampling.samples, self.batch):
                group = min(self.batch, sampling.samples - first)
                size = max(1, self.batch // group)
                for start in range(0, len(by_length), size):
                    chosen = by_length[start : start + size]
                    draws_BT = draws_PGT[chosen, first : first + group].flatten(0, 1)
                    rows = self._decode([prompt_ids[p] for p in chosen], group, draws_BT, sampling)
                    for index, completion in enumerate(rows):
                        found[chosen[index // group]].append(completion)
        return found

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        """Log-probs at temperature 1 of each response's tokens and the end-of-turn token."""
        tokenizer, model = self.policy.tokenizer, self.policy.model
        end = int(tokenizer.eos_token_id)
        prompt_ids = batch_ids(tokenizer, chat_texts(tokenizer, [*prompts]))
        answer_ids = [[*ids, end] for ids in batch_ids(tokenizer, [*responses])]
        rows = [
            Row(tuple(prompt), tuple(answer), index)
            for index, (prompt, answer) in enumerate(zip(prompt_ids, answer_ids, strict=True))
        ]
        width = 4 * model.config.get_text_config().vocab_size
        found: list[list[float]] = [[] for _ in rows]
        with evaluating(self.policy), torch.no_grad():
            for chunk in batches(rows, max(1, LOGITS_BYTES // width)):
                logp_BT, _ = response_logps(model, chunk, int(tokenizer.pad_token_id))
                for row, logp_T in zip(chunk, logp_BT.tolist(), strict=True):
                    found[row.place] = logp_T[: len(row.response)]
        return found

    def _decode(
        self, prompt_ids: list[list[int]], group: int, draws_BT: Tensor, sampling: Sampling
    ) -> Iterator[Completion]:
        """Decode `group` rows of each prompt together; yields them in the order of the prompts."""
        model, device = self.policy.model, self.policy.model.device
        padded = pad_left(prompt_ids, int(self.policy.tokenizer.pad_token_id), device)
        cache = growing_cache(model, sampling.max_new_tokens)
        logits_BV = run(model, padded, cache, keep=1)[:, -1].repeat_interleave(group, dim=0)
        cache.batch_repeat_interleave(group)
        mask_BT = padded.mask_BT.repeat_interleave(group, dim=0)
        position_B = padded.positions_BT[:, -1].repeat_interleave(group)
        draws_BT = draws_BT.to(device)
        rows_B = torch.arange(len(position_B), device=device)
        live_B = torch.ones_like(rows_B, dtype=torch.bool)
        stop = torch.tensor(sorted(self.stop_ids), device=device)
        tokens_NT = torch.zeros(len(rows_B), sampling.max_new_tokens, dtype=torch.long)
        tokens_NT = tokens_NT.to(device)
        logps_NT = torch.zeros(tokens_NT.shape, device=device)
        lengths_N = torch.full_like(rows_B, sampling.max_new_tokens)
        for step in range(sampling.max_new_tokens):
            token_B = pick(logits_BV, draws_BT[rows_B, step], sampling)
            tokens_NT[rows_B, step] = token_B
            logps_NT[rows_B, step] = token_logps(logits_BV, token_B, sampling.temperature or 1.0)
            ended_B = live_B & torch.isin(token_B, stop)
            lengths_N[rows_B[ended_B]] = step + 1
            live_B = live_B & ~ended_B
            alive = int(live_B.sum())
            if not alive or step + 1 == sampling.max_new_tokens:
                break
            position_B = position_B + 1
            if alive <= (1 - COMPACT_SHARE) * len(live_B):
                kept = live_B.nonzero()[:, 0]
                cache.batch_select_indices(kept)
                token_B, position_B = token_B[kept], position_B[kept]
                rows_B, mask_BT, live_B = rows_B[kept], mask_BT[kept], live_B[kept]
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(mask_BT), 1)], dim=1)
            turn = Padded(token_B[:, None], mask_BT, position_B[:, None])
            logits_BV = run(model, turn, cache, keep=1)[:, -1]
        yield from self._completions(tokens_NT, logps_NT, lengths_N)

    def _completions(
        self, tokens_NT: Tensor, logps_NT: Tensor, lengths_N: Tensor
    ) -> Iterator[Completion]:
        pieces = zip(tokens_NT.tolist(), logps_NT.tolist(), lengths_N.tolist(), strict=True)
        cut = [(tuple(tokens[:n]), tuple(logps[:n])) for tokens, logps, n in pieces]
        texts = self.policy.tokenizer.batch_decode(
            [[t for t in tokens if t not in self.stop_ids] for tokens, _ in cut],
            skip_special_tokens=True,
        )
        for (tokens, logps), text in zip(cut, texts, strict=True):
            yield Completion(text, tokens, logps, truncated=tokens[-1] not in self.stop_ids)


def stop_ids(policy: Policy) -> frozenset[int]:
    """The tokens that end a response: the tokenizer's and those of the generation config."""
    configured = getattr(policy.model.generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list) else [configured]
    return frozenset(int(i) for i in [policy.tokenizer.eos_token_id, *more] if i is not None)


@contextmanager
def evaluating(policy: Policy) -> Iterator[None]:
    """Switch dropout off, and put the model back as it was."""
    training = policy.model.training
    policy.model.eval()
    try:
        yield
    finally:
        policy.model.train(training)


def uniform(prompts: int, sampling: Sampling) -> Tensor:
    """One number in [0, 1) for each token that may be drawn [P, G, T]; nothing when greedy."""
    shape = (prompts, sampling.samples, sampling.max_new_tokens)
    if sampling.temperature == 0:
        return torch.zeros(1).expand(shape)
    return torch.rand(shape, generator=torch.Generator().manual_seed(sampling.seed))


def pick(logits_BV: Tensor, draws_B: Tensor, sampling: Sampling) -> Tensor:
    """The next tokens [B]: the likeliest, or the one where the cumulated mass passes the draw."""
    if sampling.temperature == 0:
        return logits_BV.argmax(dim=-1)
    logits_BV = keep_likely(logits_BV.float() / sampling.temperature, sampling)
    mass_BV = logits_BV.softmax(dim=-1).cumsum(dim=-1)
    target_B = draws_B * mass_BV[:, -1]
    return torch.searchsorted(mass_BV, target_B[:, None], right=True)[:, 0].clamp(
        max=logits_BV.shape[-1] - 1
    )


def keep_likely(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Rule out what top-k and then top-p (nucleus, arXiv:1904.09751) leave out."""
    if 0 < sampling.top_k < logits_BV.shape[-1]:
        least_B1 = logits_BV.topk(sampling.top_k).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(descending=True, stable=True)
        before_BV = sorted_BV.softmax(dim=-1).cumsum(dim=-1) - sorted_BV.softmax(dim=-1)
        sorted_BV = sorted_BV.masked_fill(before_BV >= sampling.top_p, -torch.inf)
        logits_BV = torch.empty_like(sorted_BV).scatter(-1, order_BV, sorted_BV)
    return logits_BV
