"""Selectors that need no measurement: all rows, a share, a balanced part."""

import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice, zip_longest

from pydantic import NonNegativeInt, PositiveInt

from posttrain.records import Record
from posttrain.select.measures import Measures
from posttrain.select.rows import difficulty_of, task_of

Rows = Iterable[Record]


def everything(rows: Rows, rng: random.Random, measures: Measures, /) -> Rows:
    """All rows."""
    return rows


def first(rows: Rows, rng: random.Random, measures: Measures, /, *, n: PositiveInt) -> Rows:
    """The first `n` rows."""
    return islice(rows, n)


def sample(rows: Rows, rng: random.Random, measures: Measures, /, *, n: PositiveInt) -> Rows:
    """`n` rows drawn without replacement, in their order."""
    kept = list(rows)
    chosen = sorted(rng.sample(range(len(kept)), min(n, len(kept))))
    return [kept[index] for index in chosen]


def balanced(rows: Rows, rng: random.Random, measures: Measures, /, *, n: PositiveInt) -> Rows:
    """`n` rows, as many of each task and difficulty as can be, drawn at random within each.

    Tasks and bands take turns, so that any first part of the output is balanced too.
    """
    cells: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for row in rows:
        cells[task_of(row), difficulty_of(row)].append(row)
    shuffled = [rng.sample(cells[key], len(cells[key])) for key in sorted(cells)]
    turns = (row for turn in zip_longest(*shuffled) for row in turn if row is not None)
    return islice(turns, n)


def hardest(rows: Rows, rng: random.Random, measures: Measures, /, *, n: PositiveInt) -> Rows:
    """The `n` rows of the highest difficulty; of equal ones the earlier."""
    return sorted(rows, key=lambda row: -difficulty_of(row))[:n]


def by_task(
    rows: Rows,
    rng: random.Random,
    measures: Measures,
    /,
    *,
    tasks: tuple[str, ...],
    n: NonNegativeInt | None = None,
) -> Rows:
    """The rows of some tasks, at most `n` of each."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        task = task_of(row)
        if task in tasks and (n is None or counts[task] < n):
            counts[task] += 1
            yield row
