"""The engine in process: batched decoding with the policy's own Hugging Face model.

Prompts of like length share a batch, padded on the left; the samples of a prompt share one
prefill; rows that are done leave the batch. A row's random numbers depend on the seed and
its place alone, so that neither batch size nor its neighbours change what is drawn.
Shapes: B rows still decoded, N rows in all, P prefixes, G samples of each, T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from posttrain.engines import Until
from posttrain.engines.decoders import decoder_for
from posttrain.engines.likelihood import (
    LOGITS_BYTES,
    Row,
    batches,
    pad_left,
    response_logps,
    token_logps,
)
from posttrain.engines.sampling import Completion, Request, Sampling
from posttrain.engines.truncation import keep_likely
from posttrain.policies import Policy, batch_ids, chat_texts

COMPACT_SHARE = 1 / 16
"""Share of finished rows above which copying the cache costs less than decoding them on."""

ONE_THREAD_PARAMETERS = 2**23
"""Below this a step's products are so small that waking a second thread costs more than it does
(two threads took 1.1 to 1.3 times as long at 2M to 6M parameters, and as long at 10M to 20M)."""

Ended = Callable[[Sequence[int]], bool]


class Rows(NamedTuple):
    """What is decoded together: row n goes on from `prefixes[owners[n]]`, draws its tokens by
    `draws_NT[n]` and may have `rooms[n]` of them, at least one."""

    prefixes: list[list[int]]
    owners: list[int]
    draws_NT: Tensor
    rooms: list[int]


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
        with decoding(self.policy):
            for first in range(0, sampling.samples, self.batch):
                group = min(self.batch, sampling.samples - first)
                size = max(1, self.batch // group)
                for start in range(0, len(by_length), size):
                    chosen = by_length[start : start + size]
                    rows = Rows(
                        [prompt_ids[p] for p in chosen],
                        [at for at in range(len(chosen)) for _ in range(group)],
                        draws_PGT[chosen, first : first + group].flatten(0, 1),
                        [sampling.max_new_tokens] * (len(chosen) * group),
                    )
                    for index, completion in enumerate(self._decode(rows, sampling)):
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

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        """Go on with each request; see `Engine.resume`."""
        texts = list(dict.fromkeys(request.prompt for request in requests))
        ids = batch_ids(self.policy.tokenizer, chat_texts(self.policy.tokenizer, texts))
        prompt_ids = dict(zip(texts, ids, strict=True))
        prefixes = [(*prompt_ids[request.prompt], *request.written) for request in requests]
        order = [*range(len(requests))]
        if until is None:
            order.sort(key=lambda i: (len(prefixes[i]), prefixes[i]))
        found = [Completion("", (), (), truncated=True)] * len(requests)
        done: list[int] = []
        stopped = False

        def told(chosen: list[int], ended: Sequence[int]) -> bool:
            nonlocal stopped
            done.extend(chosen[row] for row in ended)
            stopped = until is not None and until(done)
            return stopped

        with decoding(self.policy):
            for start in range(0, len(order), self.batch):
                chosen = order[start : start + self.batch]
                # The same rows in the same order: the same bits, whether anybody listens or not.
                chosen.sort(key=lambda i: (len(prefixes[i]), prefixes[i], i))
                distinct = list(dict.fromkeys(prefixes[i] for i in chosen))
                places = {prefix: at for at, prefix in enumerate(distinct)}
                rows = Rows(
                    [list(prefix) for prefix in distinct],
                    [places[prefixes[i]] for i in chosen],
                    own_draws([requests[i] for i in chosen], sampling),
                    [requests[i].room for i in chosen],
                )
                completions = self._decode(rows, sampling, partial(told, chosen))
                for index, completion in zip(chosen, completions, strict=True):
                    found[index] = completion
                if stopped:
                    break
        return found

    def _decode(
        self, rows: "Rows", sampling: Sampling, ended: "Ended | None" = None
    ) -> Iterator[Completion]:
        """Decode the rows together; yields their completions in order. `ended` is told which rows
        ended at each token, and stops the others when it says so."""
        model, device = self.policy.model, self.policy.model.device
        padded = pad_left(rows.prefixes, int(self.policy.tokenizer.pad_token_id), device)
        width = max(rows.rooms)
        decoder = decoder_for(model, padded, rows.owners, width)
        logits_BV = decoder.begin()
        draws_NT = rows.draws_NT.to(device)
        rooms_N = torch.tensor(rows.rooms, device=device)
        rows_B = torch.arange(len(rows.owners), device=device)
        live_B = torch.ones_like(rows_B, dtype=torch.bool)
        stop = torch.tensor(sorted(self.stop_ids | set(sampling.stop)), device=device)
        tokens_NT = torch.zeros(len(rows_B), width, dtype=torch.long, device=device)
        logps_NT = torch.zeros(tokens_NT.shape, device=device)
        lengths_N = rooms_N.clone()
        for step in range(width):
            token_B = pick(logits_BV, draws_NT[rows_B, step], sampling)
            tokens_NT[rows_B, step] = token_B
            logps_NT[rows_B, step] = token_logps(logits_BV, token_B, sampling.temperature or 1.0)
            full_B = rooms_N[rows_B] == step + 1
            ended_B = live_B & (torch.isin(token_B, stop) | full_B)
            lengths_N[rows_B[ended_B]] = step + 1
            live_B = live_B & ~ended_B
            if ended is not None and bool(ended_B.any()) and ended(rows_B[ended_B].tolist()):
                lengths_N[rows_B[live_B]] = step + 1
                break
            alive = int(live_B.sum())
            if not alive:
                break
            if alive <= (1 - COMPACT_SHARE) * len(live_B):
                kept = live_B.nonzero()[:, 0]
                decoder.keep(kept)
                token_B, rows_B, live_B = token_B[kept], rows_B[kept], live_B[kept]
            logits_BV = decoder.step(token_B)
        yield from self._completions(tokens_NT, logps_NT, lengths_N, frozenset(stop.tolist()))

    def _completions(
        self, tokens_NT: Tensor, logps_NT: Tensor, lengths_N: Tensor, stop: frozenset[int]
    ) -> Iterator[Completion]:
        pieces = zip(tokens_NT.tolist(), logps_NT.tolist(), lengths_N.tolist(), strict=True)
        cut = [(tuple(tokens[:n]), tuple(logps[:n])) for tokens, logps, n in pieces]
        texts = self.policy.tokenizer.batch_decode(
            [[t for t in tokens if t not in self.stop_ids] for tokens, _ in cut],
            skip_special_tokens=True,
        )
        for (tokens, logps), text in zip(cut, texts, strict=True):
            yield Completion(text, tokens, logps, truncated=tokens[-1] not in stop)


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


@contextmanager
def decoding(policy: Policy) -> Iterator[None]:
    """As `evaluating`, without gradients, and on one thread of the CPU if the model is small."""
    threads = torch.get_num_threads()
    small = policy.model.device.type == "cpu" and policy.model.num_parameters() < (
        ONE_THREAD_PARAMETERS
    )
    torch.set_num_threads(1 if small else threads)
    try:
        with evaluating(policy), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def uniform(prompts: int, sampling: Sampling) -> Tensor:
    """One number in [0, 1) for each token that may be drawn [P, G, T]; nothing when greedy."""
    shape = (prompts, sampling.samples, sampling.max_new_tokens)
    if sampling.temperature == 0:
        return torch.zeros(1).expand(shape)
    return torch.rand(shape, generator=torch.Generator().manual_seed(sampling.seed))


def own_draws(requests: Sequence[Request], sampling: Sampling) -> Tensor:
    """Each request's numbers from its own seed, those of the tokens it has yet to write [N, T]."""
    width = max(request.room for request in requests)
    draws_NT = torch.zeros(len(requests), width)
    if sampling.temperature:
        for row, request in zip(draws_NT, requests, strict=True):
            written = len(request.written)
            generator = torch.Generator().manual_seed(request.seed)
            row[: request.room] = torch.rand(written + request.room, generator=generator)[written:]
    return draws_NT


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
