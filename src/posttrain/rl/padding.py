"""Rows of numbers as tensors [B, T], like the log-probs they go with."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posttrain.rl.experience import Lesson


def like(wanted_BT: Tensor, rows: Sequence[Sequence[float]], empty: float = 0.0) -> Tensor:
    """Rows of numbers as a tensor of the wanted width, type and device, zeros at the end; a row
    without numbers is all `empty`."""
    width = wanted_BT.shape[1]
    padded = [[*row, *[0.0] * (width - len(row))] if row else [empty] * width for row in rows]
    return torch.tensor(padded, dtype=wanted_BT.dtype, device=wanted_BT.device)


def advantages(wanted_BT: Tensor, lessons: Sequence[Lesson]) -> Tensor:
    """The advantages [B, 1], or [B, T] where any lesson has one per token."""
    if all(len(lesson.advantage) == 1 for lesson in lessons):
        return like(wanted_BT[:, :1], [lesson.advantage for lesson in lessons])
    return like(
        wanted_BT,
        [
            lesson.advantage * (len(lesson.rollout.tokens) if len(lesson.advantage) == 1 else 1)
            for lesson in lessons
        ],
    )
