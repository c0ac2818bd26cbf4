"""Prompts that a seed policy solves sometimes."""

import random
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of

Share = Annotated[float, Field(ge=0, le=1)]


def pass_rate_band(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    low: Share = 0.125,
    high: Share = 0.875,
) -> Iterable[Record]:
    """Prompts whose share of right rollouts lies in [`low`, `high`] (limits assumed).

    Among the stage's 8 rollouts: those solved once at least, and failed once at least.
    """
    prompts = all_of(rows, Prompt)
    rates = measures.pass_rates(prompts)
    return [row for row, rate in zip(prompts, rates, strict=True) if low <= rate <= high]
