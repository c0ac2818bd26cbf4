"""Rows between two quantiles of something that the policy tells about them."""

import random
from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of

Quantile = Annotated[float, Field(ge=0, le=1)]


def entropy_band(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    low: Quantile = 0.2,
    high: Quantile = 1.0,
) -> Iterable[Record]:
    """Prompts on which the policy's entropy is not low (OCRVerse, arXiv:2601.21639).

    Kept: between the quantiles `low` and `high` (assumed) of entropy per token in nats, estimated
    by -log p of the policy's own rollouts.
    """
    prompts = all_of(rows, Prompt)
    return within(prompts, measures.entropies(prompts), low, high)


def perplexity_band(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    low: Quantile = 0.2,
    high: Quantile = 0.8,
) -> Iterable[Record]:
    """Responses neither trivial nor noisy to the policy (BFS-Prover-V2, arXiv:2509.06493).

    ppl = -(1/T) sum_t log p(a_t), which the paper calls perplexity; kept: between the quantiles
    `low` and `high` (assumed) of this round's rows. Of a pair the chosen response counts.
    """
    given = list(rows)
    losses = measures.note("ppl", given, [-logp for logp in measures.logps(given)])
    return within(given, losses, low, high)


def within(
    rows: Sequence[Record], values: Sequence[float], low: float, high: float
) -> list[Record]:
    """Rows whose value lies between two quantiles of all, with linear interpolation."""
    if not values:
        return []
    lowest, highest = np.quantile(np.asarray(values), [low, high])
    return [row for row, value in zip(rows, values, strict=True) if lowest <= value <= highest]
