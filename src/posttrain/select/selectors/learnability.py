"""The funnel of STAgent (arXiv:2512.24957): trivial, noisy or learnable, by a policy's rollouts."""

import random
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of

Bucket = Literal["trivial", "learnable", "noise"]
Score = Literal["rate_variance", "variance"]


def learnability(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    keep: tuple[Bucket, ...] = ("learnable",),
    n: PositiveInt | None = None,
    score: Score = "rate_variance",
    trivial: Annotated[float, Field(ge=0, le=1)] = 0.875,
    noise: Annotated[float, Field(ge=0, le=1)] = 0.125,
) -> Iterable[Record]:
    """The prompts of some buckets, of these the `n` of the highest score, ties by id.

    With p the pass rate: p > `trivial` is trivial, p < `noise` noise (both assumed), the rest
    learnable; the three make up the pool. `rate_variance` is the paper's p * p(1-p), whose peak is
    at 2/3; `variance` is p(1-p), whose peak is at 1/2.
    """
    prompts = all_of(rows, Prompt)
    rates = measures.pass_rates(prompts)
    scores = measures.note("learnability", prompts, [score_of(p, score) for p in rates])
    buckets = [bucket_of(p, trivial, noise) for p in rates]
    kept = [at for at, bucket in enumerate(buckets) if bucket in keep]
    if n is not None:
        kept = sorted(kept, key=lambda at: (-scores[at], prompts[at].id))[:n]
    return [prompts[at] for at in kept]


def score_of(rate: float, score: Score) -> float:
    """The learnability of a prompt with a pass rate."""
    variance = rate * (1 - rate)
    return rate * variance if score == "rate_variance" else variance


def bucket_of(rate: float, trivial: float, noise: float) -> Bucket:
    """Where a pass rate lies."""
    if rate > trivial:
        return "trivial"
    return "noise" if rate < noise else "learnable"
