"""The two prompt sets of DRIVE (arXiv:2511.06307): spread evenly, then the hardest alone."""

import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice, zip_longest
from typing import Literal

from pydantic import PositiveInt

from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of

SIZES = {"uniform": 9000, "hard": 72}


def drive(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    phase: Literal["uniform", "hard"],
    n: PositiveInt | None = None,
) -> Iterable[Record]:
    """`uniform`: as many prompts of each pass rate as can be. `hard`: those of the lowest one.

    `n` is 9,000 and 72 by default, as published (later phases: 50, then 25). Prompts that no
    rollout solved are kept; ties go by id. That the even spread is one over pass rates is assumed.
    """
    prompts = all_of(rows, Prompt)
    rates = measures.pass_rates(prompts)
    if phase == "hard":
        ranked = sorted(zip(rates, prompts, strict=True), key=lambda pair: (pair[0], pair[1].id))
        return [row for _, row in ranked[: n or SIZES[phase]]]
    cells: dict[float, list[Prompt]] = defaultdict(list)
    for row, rate in zip(prompts, rates, strict=True):
        cells[rate].append(row)
    shuffled = [rng.sample(cells[rate], len(cells[rate])) for rate in sorted(cells)]
    turns = (row for turn in zip_longest(*shuffled) for row in turn if row is not None)
    return islice(turns, n or SIZES[phase])
