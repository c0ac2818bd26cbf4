"""Conversations that share a row: what all of them begin with is read once.

A row is [beginning, rest of the first, rest of the second, ...]; each rest sees the beginning and
itself, at the positions it has in its own conversation, so every token's state is what it would
be in a row of its own. With a prompt of p tokens and rests of c and r a pair costs p + c + r
tokens instead of 2p + c + r, and there is one forward pass as before.
Shapes: P rows, K conversations of a row at most, T columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

PADDING, BEGINNING = -1, 0
"""What a column belongs to, else the number of its conversation, from 1."""


class Packed(NamedTuple):
    """Token ids, positions and what each column belongs to, all [P, T]."""

    ids_PT: Tensor
    positions_PT: Tensor
    parts_PT: Tensor

    @classmethod
    def of(cls, groups: Sequence[Sequence[Sequence[int]]], pad: int) -> Self:
        """Pack the token ids of the conversations of each group, padded on the right."""
        common = [common_length(group) for group in groups]
        wide = max(map(width, groups))
        ids_PT = torch.full((len(groups), wide), pad)
        positions_PT = torch.zeros_like(ids_PT)
        parts_PT = torch.full_like(ids_PT, PADDING)
        for at, (group, begun) in enumerate(zip(groups, common, strict=True)):
            ids_PT[at, :begun] = torch.tensor(group[0][:begun])
            positions_PT[at, :begun] = torch.arange(begun)
            parts_PT[at, :begun] = BEGINNING
            start = begun
            for part, row in enumerate(group, 1):
                own = slice(start, start + len(row) - begun)
                ids_PT[at, own] = torch.tensor(row[begun:])
                positions_PT[at, own] = torch.arange(begun, len(row))
                parts_PT[at, own] = part
                start = own.stop
        return cls(ids_PT, positions_PT, parts_PT)

    def inputs(self, device: torch.device) -> dict[str, Tensor]:
        """What a model with a pooling of ours takes."""
        return {
            "input_ids": self.ids_PT.to(device),
            "attention_mask": (self.parts_PT != PADDING).long().to(device),
            "position_ids": self.positions_PT.to(device),
            "parts": self.parts_PT.to(device),
        }


class PairCollator:
    """Rows of `chosen_ids` and `rejected_ids`, and `margin` where there is one, as one batch."""

    def __init__(self, pad: int) -> None:
        self.pad = pad

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        packed = Packed.of([(row["chosen_ids"], row["rejected_ids"]) for row in rows], self.pad)
        batch = packed.inputs(torch.device("cpu"))
        if "margin" in rows[0]:
            batch["margin"] = torch.tensor([row["margin"] for row in rows], dtype=torch.float)
        return batch


def common_length(group: Sequence[Sequence[int]]) -> int:
    """Tokens that all begin with; each keeps at least its last for itself."""
    longest = min(map(len, group)) - 1
    columns = zip(*(row[:longest] for row in group), strict=True)
    return next((at for at, column in enumerate(columns) if len(set(column)) > 1), longest)


def width(group: Sequence[Sequence[int]]) -> int:
    """Columns that the conversations of a group take together."""
    return sum(map(len, group)) - (len(group) - 1) * common_length(group)


def visible(parts_PT: Tensor) -> Tensor:
    """Who may see whom, [P, 1, T, T]: what stands before, of the beginning and of its own part."""
    own_PTT = parts_PT[:, :, None] == parts_PT[:, None, :]
    begun_PTT = (parts_PT == BEGINNING)[:, None, :]
    return (own_PTT | begun_PTT).tril()[:, None]


def side_masks(parts_PT: Tensor) -> list[Tensor]:
    """The columns of each conversation [P, T], the beginning being in all: K masks."""
    begun_PT = parts_PT == BEGINNING
    return [begun_PT | (parts_PT == part) for part in range(1, int(parts_PT.max()) + 1)]


def last_columns(parts_PT: Tensor) -> list[Tensor]:
    """The last column [P] of each of the K conversations."""
    columns_T = torch.arange(parts_PT.shape[1], device=parts_PT.device)
    return [
        (columns_T * (parts_PT == part)).argmax(dim=1) for part in range(1, int(parts_PT.max()) + 1)
    ]


def can_share(model: Any) -> bool:
    """Whether every layer of the model honours a mask of our own: full attention by SDPA, neither
    sliding windows nor recurrent layers."""
    if not hasattr(model.config, "get_text_config"):
        return False
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    sliding = getattr(config, "sliding_window", None) and getattr(
        config, "use_sliding_window", True
    )
    return (
        getattr(config, "_attn_implementation", "") == "sdpa"
        and kinds == {"full_attention"}
        and not sliding
        and getattr(config, "is_causal", True)
        and hasattr(config, "rope_parameters")
    )


def shared_share(trainer: Any) -> float:
    """The share of the trained tokens that the shared beginnings saved; 0 without sharing."""
    if not isinstance(trainer.data_collator, PairCollator):
        return 0.0
    rows = trainer.train_dataset
    total = saved = 0
    for chosen, rejected in zip(rows["chosen_ids"], rows["rejected_ids"], strict=True):
        total += len(chosen) + len(rejected)
        saved += common_length((chosen, rejected))
    return saved / total
