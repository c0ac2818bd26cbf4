"""Selectors: which of k samples of an item is taken for the answer, and how often that is right.

Each gives, for every item and every k, the expected correctness [I, K] of its choice over the
k-subsets of the N samples that were drawn once; None when the samples lack what it reads. A
sample without what a selector reads is never chosen, and a subset of such samples is wrong. To
add one, write the function and a line in SELECTORS. Shapes: I items, N samples, K values of k.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from posttrain.errors import ConfigError, Fault
from posttrain.plugins import Plugin, build
from posttrain.records import Sample
from posttrain.statistics import (
    Array,
    judge_at_k,
    majority_at_k,
    pass_at_k,
    weighted_majority_at_k,
)


class Candidates(NamedTuple):
    """The samples of every item; NaN stands for a score or log-prob that there is not."""

    correct_IN: Array
    predictions: Sequence[Sequence[str | None]]
    judge_IN: Array
    logp_IN: Array
    tokens_IN: Array

    @classmethod
    def of(cls, rows: Sequence[Sample], n: int) -> Self:
        """Of rows that stand item by item, `n` of each."""
        said = [row.prediction for row in rows]

        def numbers(values: Sequence[float | None]) -> Array:
            return np.array(values, dtype=float).reshape(-1, n)

        return cls(
            correct_IN=numbers([row.correct for row in rows]),
            predictions=[said[i : i + n] for i in range(0, len(said), n)],
            judge_IN=numbers([row.judge for row in rows]),
            logp_IN=numbers([row.logp for row in rows]),
            tokens_IN=numbers([row.tokens for row in rows]),
        )


Selector = Callable[[Candidates, Sequence[int], np.random.Generator], Array | None]


def verifier(found: Candidates, ks: Sequence[int], rng: np.random.Generator, /) -> Array:
    """Any right one, as an oracle chooses: pass@k = 1 - C(n-c, k)/C(n, k) (arXiv:2107.03374)."""
    return pass_at_k(found.correct_IN, ks)


def majority(found: Candidates, ks: Sequence[int], rng: np.random.Generator, /) -> Array:
    """The most frequent prediction, of equals the first seen (arXiv:2203.11171)."""
    return majority_at_k(found.correct_IN, found.predictions, ks, rng)


def judge(found: Candidates, ks: Sequence[int], rng: np.random.Generator, /) -> Array | None:
    """The sample that the judge scores highest; equal scores are averaged. Exact."""
    return highest(found.correct_IN, found.judge_IN, ks)


def weighted_majority(
    found: Candidates,
    ks: Sequence[int],
    rng: np.random.Generator,
    /,
    *,
    weights: Literal["softmax", "sum"] = "softmax",
    temperature: Annotated[float, Field(gt=0)] = 1.0,
) -> Array | None:
    """The prediction with the most weight, each vote weighed by the judge (arXiv:2206.02336).

    `softmax`: exp(score / `temperature`), shares of the item; `sum`: the raw scores, of which
    negative ones count against their prediction (`temperature` does not matter).
    """
    if np.isnan(found.judge_IN).all():
        return None
    scores_IN = found.judge_IN / temperature
    return weighted_majority_at_k(
        found.correct_IN, found.predictions, scores_IN, ks, rng, weights=weights
    )


def self_certainty(
    found: Candidates,
    ks: Sequence[int],
    rng: np.random.Generator,
    /,
    *,
    per: Literal["token", "response"] = "token",
) -> Array | None:
    """The sample that the policy itself finds likeliest: highest mean token log-prob. Exact.

    Convention: log-probs of the drawn tokens at the sampling temperature, end of turn included;
    `per: response` takes their sum. arXiv:2502.18581 gave the name to another measure, the mean
    divergence of each token's distribution from the uniform one, which needs whole distributions.
    """
    empty_IN = found.tokens_IN == 0
    length_IN = np.where(empty_IN, np.nan, found.tokens_IN if per == "token" else 1.0)
    return highest(found.correct_IN, found.logp_IN / length_IN, ks)


def highest(correct_IN: Array, score_IN: Array, ks: Sequence[int]) -> Array | None:
    """Expected correctness [I, K] of the highest score in a k-subset; None without any score."""
    scored_IN = np.isfinite(score_IN)
    if not scored_IN.any():
        return None
    right_IN = np.where(scored_IN, correct_IN, 0.0)
    return judge_at_k(right_IN, np.where(scored_IN, score_IN, -np.inf), ks)


SELECTORS: dict[str, Callable[..., Array | None]] = {
    "verifier": verifier,
    "majority": majority,
    "judge": judge,
    "weighted_majority": weighted_majority,
    "self_certainty": self_certainty,
}


def chosen(plugins: Sequence[Plugin]) -> dict[str, Selector]:
    """The selectors by name, built; ConfigError for one named twice: their numbers would clash."""
    names = [plugin.name for plugin in plugins]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        why = "its numbers go by its name"
        mend = "name it once, and run again with the other options"
        raise ConfigError(
            Fault(f"selector `{twice[0]}` named twice", "best_of_n.selectors", why, mend)
        )
    return {plugin.name: build(SELECTORS, plugin, "best_of_n.selectors") for plugin in plugins}
