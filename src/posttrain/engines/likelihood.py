"""Log-probs of given responses, where equal prompts and equal responses share a forward pass.

Differentiable, so that training pays for a prompt once and not once per completion, and for a
completion drawn twice (of a sharp policy's, a third or more) once. Logits of a large vocabulary
stand in memory a slice of tokens at a time, in the backward pass too.
Shapes: B rows, U distinct rows, P distinct prompts, T response tokens, N tokens, H hidden width,
V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers import DynamicCache

from posttrain.engines.recompute import recomputed, recomputed_layers
from posttrain.engines.sampling import Sampling
from posttrain.engines.truncation import renormalised

WHOLE = Sampling()
"""Drawn from all of the vocabulary."""

LOGITS_BYTES = 256 * 2**20
"""Logits of at most this size in float32 stand in memory when likelihoods are measured."""

PASS_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Tokens of a pass with gradients. On a CPU the activations of more spill the caches (an update
took 1.4 times as long at 8192, 1.9 times at 16384, at 3M parameters); the GPU's is assumed."""


def pass_tokens(asked: int, device: torch.device) -> int:
    """As many as were asked for; 0: what suits the device."""
    return asked or PASS_TOKENS.get(device.type, PASS_TOKENS["cuda"])


class Padded(NamedTuple):
    """Token ids, their mask and positions [B, T]."""

    ids_BT: Tensor
    mask_BT: Tensor
    positions_BT: Tensor


Ids = tuple[int, ...]
Context = Callable[[], AbstractContextManager[Any]]


class Row(NamedTuple):
    """One response to one prompt, in token ids; `place` is where the caller has it."""

    prompt: Ids
    response: Ids
    place: int


def response_logps(
    model: Any, rows: Sequence[Row], pad: int, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probs [B, T] in float32 and their mask; responses start at column 0."""
    logps_BT, mask_BT, _ = response_scores(model, rows, pad, temperature)
    return logps_BT, mask_BT


def response_scores(
    model: Any,
    rows: Sequence[Row],
    pad: int,
    temperature: float = 1.0,
    *,
    sampling: Sampling = WHOLE,
    entropy: bool = False,
    recompute: bool = False,
    context: Context = nullcontext,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probs [B, T], their mask and, if asked for, the entropy in nats at each token.

    `sampling`: the top-k and top-p that the tokens were drawn with, which have a say in gradients.

    `recompute`: the backward pass runs each layer again instead of keeping its activations.
    `context`: what the model runs in, then too.
    """
    with context():
        drawn = sampling._replace(temperature=temperature)
        return _shared_scores(model, rows, pad, drawn, entropy, recompute, context)


def _shared_scores(
    model: Any,
    rows: Sequence[Row],
    pad: int,
    drawn: Sampling,
    entropy: bool,
    recompute: bool,
    context: Context,
) -> tuple[Tensor, Tensor, Tensor | None]:
    device = model.device
    distinct: dict[tuple[Ids, Ids], int] = {}
    of_row = [distinct.setdefault((row.prompt, row.response), len(distinct)) for row in rows]
    prompts: dict[Ids, int] = {}
    owner = [prompts.setdefault(prompt, len(prompts)) for prompt, _ in distinct]
    owner_U = torch.tensor(owner, device=device)
    # A share of a model must make as many passes as the others: none without a second column.
    least = 2 if isinstance(model, FSDPModule) else 1
    responses = pad_right([response for _, response in distinct], pad, device, least)
    prefix = pad_left(list(prompts), pad, device)
    cache = DynamicCache(config=model.config)
    first_UV = run(model, prefix, cache, keep=1)[:, -1][owner_U]
    logps_UT = drawn_logps(first_UV, responses.ids_BT[:, 0], drawn)[:, None]
    entropy_UT = entropies(first_UV, drawn.temperature)[:, None] if entropy else None
    if responses.ids_BT.shape[1] > 1:
        cache.batch_select_indices(owner_U)
        prefix_mask_UT = prefix.mask_BT[owner_U]
        rest = Padded(
            responses.ids_BT[:, :-1],
            torch.cat([prefix_mask_UT, responses.mask_BT[:, :-1]], dim=1),
            responses.positions_BT[:, :-1] + prefix_mask_UT.sum(dim=1, keepdim=True),
        )
        following_UT = responses.ids_BT[:, 1:]
        with recomputed_layers(model, context) if recompute else nullcontext():
            rest_UT, spread_UT = piece_scores(
                model, rest, cache, following_UT, drawn, entropy, context
            )
        logps_UT = torch.cat([logps_UT, rest_UT], dim=1)
        if entropy_UT is not None and spread_UT is not None:
            entropy_UT = torch.cat([entropy_UT, spread_UT], dim=1)
    of_row_B = torch.tensor(of_row, device=device)
    spread_BT = None if entropy_UT is None else entropy_UT[of_row_B]
    return logps_UT[of_row_B], responses.mask_BT.bool()[of_row_B], spread_BT


def piece_scores(
    model: Any,
    piece: Padded,
    cache: DynamicCache,
    next_UT: Tensor,
    drawn: Sampling,
    entropy: bool,
    context: Context,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [U, T] of the tokens that follow each of the piece's, and entropies if asked for.

    Where all logits are more than LOGITS_BYTES they are made slice by slice, if the model has
    nothing behind its output matrix (Gemma 2's soft cap, Cohere's scale).
    """
    vocabulary = model.config.get_text_config().vocab_size
    if 4 * next_UT.numel() * vocabulary <= LOGITS_BYTES or not plain_head(model, piece):
        logits_UTV = run(model, piece, cache, keep=0)
        logps_UT = drawn_logps(logits_UTV, next_UT, drawn)
        return logps_UT, entropies(logits_UTV, drawn.temperature) if entropy else None
    hidden_NH = hidden_states(model, piece, cache).flatten(0, 1)
    size = max(1, LOGITS_BYTES // (4 * vocabulary))
    head = model.get_output_embeddings()

    def scores(part_NH: Tensor, next_N: Tensor) -> tuple[Tensor, Tensor]:
        logits_NV = head(part_NH)
        spread_N = entropies(logits_NV, drawn.temperature) if entropy else logits_NV.new_empty(0)
        return drawn_logps(logits_NV, next_N, drawn), spread_N

    slices = zip(torch.split(hidden_NH, size), torch.split(next_UT.flatten(), size), strict=True)
    found = [recomputed(scores, context, *part) for part in slices]
    logps_N, spread_N = (torch.cat(column) for column in zip(*found, strict=True))
    return logps_N.view_as(next_UT), spread_N.view_as(next_UT) if entropy else None


def plain_head(model: Any, piece: Padded) -> bool:
    """Whether the output matrix on the last hidden state gives the model's logits; no for a share
    of a model, which has no matrix but in a pass of the whole."""
    if isinstance(model, FSDPModule):
        return False
    one = Padded(piece.ids_BT[:1, :1], piece.mask_BT[:1, -1:], piece.positions_BT[:1, :1])
    with torch.no_grad():
        logits_BTV = run(model, one, DynamicCache(config=model.config), keep=0)
        hidden_BTH = hidden_states(model, one, DynamicCache(config=model.config))
        return torch.allclose(model.get_output_embeddings()(hidden_BTH), logits_BTV)


def hidden_states(model: Any, piece: Padded, cache: DynamicCache) -> Tensor:
    """The last hidden states [B, T, H] of one more piece."""
    hidden_BTH: Tensor = model.get_decoder()(
        input_ids=piece.ids_BT,
        attention_mask=piece.mask_BT,
        position_ids=piece.positions_BT,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return hidden_BTH


def batches(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Split rows so that each forward pass holds at most `tokens`, pads included.

    Equal rows, and rows of one prompt, stay together; prompts with answers of like length are
    neighbours. A row that is longer than `tokens` gets a pass of its own.
    """
    longest: dict[Ids, int] = {}
    for row in rows:
        longest[row.prompt] = max(longest.get(row.prompt, 0), len(row.response))
    chunk: list[Row] = []
    prompts: set[Ids] = set()
    distinct: set[tuple[Ids, Ids]] = set()
    prompt_width = response_width = 0
    for row in sorted(rows, key=lambda r: (longest[r.prompt], r.prompt, r.response, r.place)):
        content = (row.prompt, row.response)
        new = content not in distinct
        held = (len(prompts) + (row.prompt not in prompts)) * max(prompt_width, len(row.prompt))
        held += (len(distinct) + new) * max(response_width, len(row.response))
        if chunk and new and held > tokens:
            yield chunk
            chunk, prompts, distinct, prompt_width, response_width = [], set(), set(), 0, 0
        chunk.append(row)
        prompts.add(row.prompt)
        distinct.add(content)
        prompt_width = max(prompt_width, len(row.prompt))
        response_width = max(response_width, len(row.response))
    if chunk:
        yield chunk


def run(model: Any, piece: Padded, cache: DynamicCache, *, keep: int) -> Tensor:
    """Run the model on one more piece; logits [B, `keep`, V] of its last tokens, 0 for all."""
    logits_BTV: Tensor = model(
        input_ids=piece.ids_BT,
        attention_mask=piece.mask_BT,
        position_ids=piece.positions_BT,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    ).logits
    return logits_BTV


def token_logps(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probs in float32 of the given tokens [...] under logits [..., V]."""
    scaled = logits.float() / temperature
    taken = scaled.gather(-1, tokens[..., None])[..., 0]
    return taken - scaled.logsumexp(dim=-1)


def drawn_logps(logits: Tensor, tokens: Tensor, drawn: Sampling) -> Tensor:
    """`token_logps` with the gradient of a draw among the tokens that `drawn` keeps."""
    logps = token_logps(logits, tokens, drawn.temperature)
    if drawn.top_p == 1 and not drawn.top_k:
        return logps
    return renormalised(logps, logits.float() / drawn.temperature, tokens, drawn)


def entropies(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy in nats, in float32, of the distributions with logits [..., V]."""
    logps = (logits.float() / temperature).log_softmax(dim=-1)
    return -(logps.exp() * logps).sum(dim=-1)


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> Padded:
    """Make a batch of rows that end together."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([[pad] * (width - len(row)) + [*row] for row in rows], device=device)
    lengths_B1 = torch.tensor([[len(row)] for row in rows], device=device)
    mask_BT = (torch.arange(width, device=device) >= width - lengths_B1).long()
    return Padded(ids_BT, mask_BT, (mask_BT.cumsum(1) - 1).clamp(min=0))


def pad_right(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device, least: int = 1
) -> Padded:
    """Make a batch of rows that start together, at least `least` tokens wide."""
    width = max(least, *map(len, rows)) if rows else least
    ids_BT = torch.tensor([[*row] + [pad] * (width - len(row)) for row in rows], device=device)
    lengths_B1 = torch.tensor([[len(row)] for row in rows], device=device)
    columns_T = torch.arange(width, device=device)
    return Padded(ids_BT, (columns_T < lengths_B1).long(), columns_T.expand(len(rows), width))
