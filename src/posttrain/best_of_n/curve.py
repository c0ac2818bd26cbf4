"""The Best-of-N curve: pass@k, majority@k and judge@k from one set of samples per item.

Shapes: I items, N samples, K values of k, M measures.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posttrain.errors import DataError, Fault
from posttrain.records import Sample, Score
from posttrain.statistics import (
    Array,
    Interval,
    bootstrap_intervals,
    generator,
    judge_at_k,
    majority_at_k,
    pair_accuracy,
    pass_at_k,
    powers_of_two,
)

SUITE = "best_of_n"
METHODS = ("pass", "majority", "judge")


class Curve(NamedTuple):
    """For each method its interval at every k; `gains`: method at the largest k minus pass@1."""

    ks: list[int]
    methods: dict[str, list[Interval]]
    gains: dict[str, Interval]
    tokens_per_sample: float
    judge_accuracy: float | None

    @property
    def chooser(self) -> str:
        """The method that could be used in earnest: the judge, without one the vote."""
        return "judge" if "judge" in self.methods else "majority"

    def points(self) -> list[dict[str, float | None]]:
        """For the report: per k each method with its interval, the tokens that k samples of an
        item take, and the tokens per solved problem (None where none is solved)."""
        found: list[dict[str, float | None]] = []
        for column, k in enumerate(self.ks):
            point: dict[str, float | None] = {"k": k}
            for method, intervals in self.methods.items():
                interval = intervals[column]
                point |= {
                    method: interval.value,
                    f"{method}_low": interval.low,
                    f"{method}_high": interval.high,
                }
            solved = self.methods[self.chooser][column].value
            tokens = k * self.tokens_per_sample
            found.append(
                point | {"tokens": tokens, "tokens_per_solved": tokens / solved if solved else None}
            )
        return found

    def scores(self, n: int) -> list[Score]:
        """The curve as rows of a scores table, `n` items."""
        return [
            Score(suite=SUITE, metric=f"{method}@{k}", n=n, **interval._asdict())
            for method, intervals in self.methods.items()
            for k, interval in zip(self.ks, intervals, strict=True)
        ]


def curve_of(rows: Sequence[Sample], n_max: int, resamples: int, seed: int) -> Curve:
    """Make the curve of samples that stand item by item, `n_max` of each."""
    ks = powers_of_two(n_max)
    correct_IN = np.array([row.correct for row in rows]).reshape(-1, n_max)
    said = [row.prediction for row in rows]
    said_IN = [said[i : i + n_max] for i in range(0, len(said), n_max)]
    values_IK = {
        "pass": pass_at_k(correct_IN, ks),
        "majority": majority_at_k(correct_IN, said_IN, ks, generator(seed, "majority")),
    }
    accuracy = None
    if rows[0].judge is not None:
        judge_IN = finite_scores(rows).reshape(-1, n_max)
        values_IK["judge"] = judge_at_k(correct_IN, judge_IN, ks)
        accuracy = pair_accuracy(correct_IN, judge_IN)
    once_I = values_IK["pass"][:, 0]
    gains_IM = np.stack([values[:, -1] - once_I for values in values_IK.values()], axis=1)
    intervals = bootstrap_intervals(
        np.hstack([*values_IK.values(), gains_IM]), resamples, generator(seed, "bootstrap")
    )
    methods = {
        method: intervals[i * len(ks) : (i + 1) * len(ks)] for i, method in enumerate(values_IK)
    }
    gains = dict(zip(values_IK, intervals[len(values_IK) * len(ks) :], strict=True))
    tokens = sum(row.tokens for row in rows) / len(rows)
    return Curve(ks, methods, gains, tokens, accuracy)


def finite_scores(rows: Sequence[Sample]) -> Array:
    """The judge's scores; a DataError for one that is no finite number."""
    scores = np.array([row.judge for row in rows], dtype=float)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        row = rows[bad[0]]
        raise DataError(
            Fault(
                "the judge gave a score that is no number",
                f"item {row.item_id}, sample {row.index}",
                f"{len(bad)} of {len(rows)} scores are not finite",
                "train the judge again: its weights overflow",
            )
        )
    return scores
