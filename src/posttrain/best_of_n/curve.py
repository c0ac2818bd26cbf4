"""The Best-of-N curve: what each selector would give at every k, from one set of samples an item.

Shapes: I items, N samples, K values of k, M measures.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from posttrain.best_of_n.selectors import SELECTORS, Candidates, Selector
from posttrain.records import Sample, Score
from posttrain.statistics import (
    Interval,
    bootstrap_intervals,
    generator,
    pair_accuracy,
    pass_at_k,
    powers_of_two,
)

SUITE = "best_of_n"

METHODS = {"verifier": "pass"}
"""Selector -> name of its numbers, where that is another one: an oracle's choice is pass@k."""

CHOOSERS = ("judge", "weighted_majority", "majority", "self_certainty", "pass")
"""Methods as they would be used in earnest; `pass` needs the answers."""


class Curve(NamedTuple):
    """For each method its interval at every k; `gains`: method at the largest k minus pass@1.

    `tokens_per_sample` is None where the samples do not say; `lacking`: selectors without what
    they read, the judge's scores or log-probs.
    """

    ks: list[int]
    methods: dict[str, list[Interval]]
    gains: dict[str, Interval]
    tokens_per_sample: float | None
    judge_accuracy: float | None
    lacking: list[str]

    @property
    def chooser(self) -> str | None:
        """The first method of CHOOSERS that there is."""
        return next((name for name in CHOOSERS if name in self.methods), None)

    def per_solved(self, cost_per_sample: float | None) -> dict[str, list[float | None]]:
        """For each method the cost of a solved item at every k: k samples over the share solved.

        None where nothing is solved or the cost is not known.
        """
        return {
            method: [
                k * cost_per_sample / interval.value
                if cost_per_sample is not None and interval.value
                else None
                for k, interval in zip(self.ks, intervals, strict=True)
            ]
            for method, intervals in self.methods.items()
        }

    def points(self) -> list[dict[str, float | None]]:
        """For the report: per k each method with its interval and the tokens per solved item
        (`*_tokens_per_solved`, of the chooser without a prefix), and the tokens of k samples."""
        found: list[dict[str, float | None]] = []
        costs = self.per_solved(self.tokens_per_sample)
        for column, k in enumerate(self.ks):
            point: dict[str, float | None] = {"k": k}
            for method, intervals in self.methods.items():
                interval = intervals[column]
                point |= {
                    method: interval.value,
                    f"{method}_low": interval.low,
                    f"{method}_high": interval.high,
                    f"{method}_tokens_per_solved": costs[method][column],
                }
            tokens = None if self.tokens_per_sample is None else k * self.tokens_per_sample
            own = costs[self.chooser][column] if self.chooser else None
            found.append(point | {"tokens": tokens, "tokens_per_solved": own})
        return found

    def scores(self, n: int) -> list[Score]:
        """The curve as rows of a scores table, `n` items."""
        return [
            Score(suite=SUITE, metric=f"{method}@{k}", n=n, **interval._asdict())
            for method, intervals in self.methods.items()
            for k, interval in zip(self.ks, intervals, strict=True)
        ]


def curve_of(
    rows: Sequence[Sample],
    n_max: int,
    resamples: int,
    seed: int,
    selectors: Mapping[str, Selector] = SELECTORS,
) -> Curve:
    """Make the curve of samples that stand item by item, `n_max` of each."""
    ks, found = powers_of_two(n_max), Candidates.of(rows, n_max)
    values = {
        METHODS.get(name, name): selector(found, ks, generator(seed, name))
        for name, selector in selectors.items()
    }
    values_IK = {method: value for method, value in values.items() if value is not None}
    once_I1 = pass_at_k(found.correct_IN, [1])
    columns = [*values_IK.values(), *(value[:, -1:] - once_I1 for value in values_IK.values())]
    rng = generator(seed, "bootstrap")
    intervals = bootstrap_intervals(np.hstack(columns), resamples, rng) if columns else []
    methods = {
        method: intervals[i * len(ks) : (i + 1) * len(ks)] for i, method in enumerate(values_IK)
    }
    gains = dict(zip(values_IK, intervals[len(values_IK) * len(ks) :], strict=True))
    tokens = sum(row.tokens for row in rows) / len(rows)
    scored = np.isfinite(found.judge_IN).any()
    return Curve(
        ks=ks,
        methods=methods,
        gains=gains,
        tokens_per_sample=tokens or None,
        judge_accuracy=pair_accuracy(found.correct_IN, found.judge_IN) if scored else None,
        lacking=[name for name, value in values.items() if value is None],
    )
