"""Shares and correlations with their intervals, and what a judge reached on a public set."""

import math
from collections.abc import Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from posttrain.statistics import Z, wilson


class Share(BaseModel):
    """A share of pairs in which the better response wins, with its 95% Wilson interval."""

    model_config = ConfigDict(frozen=True)

    pairs: int
    accuracy: float
    low: float
    high: float


def share_of(right: Sequence[bool]) -> Share:
    """The share that is true, of at least one."""
    wins = sum(right)
    low, high = wilson(wins / len(right), len(right))
    return Share(pairs=len(right), accuracy=wins / len(right), low=low, high=high)


class SetResult(BaseModel):
    """A judge on a public set. `scores[headline]` is held against `min_score`, where one is given.

    `overall` and `slices` count pairs, `matrix` is RM-Bench's [chosen style][rejected style],
    `unscored` are items with an answer that is no number: they are lost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    digest: str
    items: int
    skipped: int
    unscored: int
    headline: str
    overall: Share
    scores: dict[str, float]
    slices: dict[str, Share]
    matrix: list[list[float]] | None
    min_score: float | None
    passed: bool


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one of them does not vary."""
    mean_x, mean_y = fmean(xs), fmean(ys)
    spread = math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))
    covered = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covered / spread if spread else 0.0


def sure_correlation(value: float, pairs: int) -> float:
    """The lower end of Fisher's 95% interval of |correlation|, 0 of fewer than four pairs.

    tanh(atanh(|r|) - z / sqrt(n - 3)): a handful of pairs proves nothing about a bias.
    """
    if pairs < 4:
        return 0.0
    if abs(value) >= 1:
        return 1.0
    return max(0.0, math.tanh(math.atanh(abs(value)) - Z / math.sqrt(pairs - 3)))
