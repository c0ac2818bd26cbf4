"""Log-probs of responses in one row without pads: all prompts of a pass, each with its responses.

A response sees its prompt and itself, at the positions that it has in a row of its own, so every
log-prob is what it would be there. The mask takes N x N booleans for N tokens, and attention is
computed for all of them. Shapes: U distinct responses, T tokens of one, N tokens of the row.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posttrain.engines.likelihood import WHOLE, Context, Ids, Row, drawn_logps, entropies
from posttrain.engines.recompute import recomputed_layers
from posttrain.engines.sampling import Sampling


class PackedRow(NamedTuple):
    """Ids and positions [N]; `parts_N`: which text a token is of, `seen_N`: the prompt's that it
    sees besides; `before`: for each token of each response, the column that foretells it."""

    ids_N: Tensor
    positions_N: Tensor
    parts_N: Tensor
    seen_N: Tensor
    before: list[list[int]]

    @classmethod
    def of(cls, texts: Sequence[tuple[Ids, Ids]]) -> "PackedRow":
        """Pack distinct (prompt, response) pairs; each prompt once, at its first response."""
        columns: list[tuple[int, int, int, int]] = []
        prompts: dict[Ids, tuple[int, int]] = {}
        before = []
        for number, (prompt, response) in enumerate(texts):
            if prompt not in prompts:
                own = -1 - len(prompts)
                columns += [(token, at, own, own) for at, token in enumerate(prompt)]
                prompts[prompt] = own, len(columns) - 1
            part, last = prompts[prompt]
            start = len(columns)
            rest = enumerate(response[:-1], len(prompt))
            columns += [(token, at, number, part) for at, token in rest]
            before.append([last, *range(start, len(columns))][: len(response)])
        ids_N, positions_N, parts_N, seen_N = torch.tensor(columns).unbind(1)
        return cls(ids_N, positions_N, parts_N, seen_N, before)

    def visible(self) -> Tensor:
        """Who may see whom [N, N]: what stands before, of its own text and of its prompt."""
        own_NN = self.parts_N[:, None] == self.parts_N[None]
        return (own_NN | (self.seen_N[:, None] == self.parts_N[None])).tril()


def packed_scores(
    model: Any,
    rows: Sequence[Row],
    temperature: float = 1.0,
    *,
    sampling: Sampling = WHOLE,
    entropy: bool = False,
    recompute: bool = False,
    context: Context = nullcontext,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `likelihood.response_scores`, for models that take a mask of ours."""
    drawn, device = sampling._replace(temperature=temperature), model.device
    distinct: dict[tuple[Ids, Ids], int] = {}
    of_row = [distinct.setdefault((row.prompt, row.response), len(distinct)) for row in rows]
    packed = PackedRow.of(list(distinct))
    lengths = [len(columns) for columns in packed.before]
    columns_K = torch.tensor([c for each in packed.before for c in each], dtype=torch.long)
    next_K = torch.tensor([t for _, response in distinct for t in response], dtype=torch.long)
    with context(), recomputed_layers(model, context) if recompute else nullcontext():
        logits_KV = model(
            input_ids=packed.ids_N[None].to(device),
            attention_mask=packed.visible()[None, None].to(device),
            position_ids=packed.positions_N[None].to(device),
            use_cache=False,
            logits_to_keep=columns_K.to(device),
        ).logits[0]
        logps_K = drawn_logps(logits_KV, next_K.to(device), drawn)
        spread_K = entropies(logits_KV, temperature) if entropy else None
    of_row_B = torch.tensor(of_row, device=device)
    columns_T = torch.arange(max(1, *lengths), device=device)
    mask_UT = columns_T < torch.tensor(lengths, device=device)[:, None]

    def padded(values_K: Tensor) -> Tensor:
        texts_UT = pad_sequence(list(torch.split(values_K, lengths)), batch_first=True)
        missing = len(columns_T) - texts_UT.shape[1]
        return torch.nn.functional.pad(texts_UT, (0, missing))[of_row_B]

    spread_BT = None if spread_K is None else padded(spread_K)
    return padded(logps_K), mask_UT[of_row_B], spread_BT
