"""Selectors: the rows of a curated set in, those that a run is to use out.

To add a selector, write a function of the rows and a `random.Random` (positional) and its
options (keyword-only), and add a line to SELECTORS. The order of what it returns is the order
of the rows in the output.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, zip_longest

from pydantic import NonNegativeInt, PositiveInt

from posttrain.records import Record

Selector = Callable[[Iterable[Record], random.Random], Iterable[Record]]

SKILLS = {
    "add": r"more\b|finds|gives (?:him|her)|gets|altogether|in all",
    "subtract": r"loses|sells|break|takes|gives \d+ to|left|fewer",
    "multiply": r"times|boxes of|bags with|doubles|each",
    "divide": r"half|share|equal(?:ly)?|splits",
    "ignore": r"years old|minutes|on the table|of the month",
}
"""What a word problem asks for, by cue words of English."""


def everything(rows: Iterable[Record], rng: random.Random, /) -> Iterable[Record]:
    """All rows."""
    return rows


def first(rows: Iterable[Record], rng: random.Random, /, *, n: PositiveInt) -> Iterable[Record]:
    """The first `n` rows."""
    return islice(rows, n)


def sample(rows: Iterable[Record], rng: random.Random, /, *, n: PositiveInt) -> Iterable[Record]:
    """`n` rows drawn without replacement, in their order."""
    kept = list(rows)
    chosen = sorted(rng.sample(range(len(kept)), min(n, len(kept))))
    return [kept[index] for index in chosen]


def balanced(rows: Iterable[Record], rng: random.Random, /, *, n: PositiveInt) -> Iterable[Record]:
    """`n` rows, as many of each task and difficulty as can be, drawn at random within each.

    Tasks and bands take turns, so that any first part of the output is balanced too.
    """
    cells: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for row in rows:
        cells[task_of(row), difficulty_of(row)].append(row)
    shuffled = [rng.sample(cells[key], len(cells[key])) for key in sorted(cells)]
    turns = (row for turn in zip_longest(*shuffled) for row in turn if row is not None)
    return islice(turns, n)


def hardest(rows: Iterable[Record], rng: random.Random, /, *, n: PositiveInt) -> Iterable[Record]:
    """The `n` rows of the highest difficulty; of equal ones the earlier."""
    return sorted(rows, key=lambda row: -difficulty_of(row))[:n]


def by_task(
    rows: Iterable[Record],
    rng: random.Random,
    /,
    *,
    tasks: tuple[str, ...],
    n: NonNegativeInt | None = None,
) -> Iterable[Record]:
    """The rows of some tasks, at most `n` of each."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        task = task_of(row)
        if task in tasks and (n is None or counts[task] < n):
            counts[task] += 1
            yield row


def one_shot(rows: Iterable[Record], rng: random.Random, /) -> Sequence[Record]:
    """One sample that asks for as many skills as can be (after arXiv:2504.20571, simplified).

    Of the rows with the most SKILLS by cue words, the hardest; of those the one with the
    smallest id. The paper ranks samples by how their training accuracy varies instead.
    """
    ranked = min(
        rows,
        key=lambda row: (-len(skills_of(text_of(row))), -difficulty_of(row), id_of(row)),
        default=None,
    )
    return [] if ranked is None else [ranked]


def skills_of(text: str) -> set[str]:
    """The skills whose cue words stand in a text."""
    return {name for name, cues in SKILLS.items() if re.search(cues, text)}


def text_of(row: Record) -> str:
    """The prompt of a row of any record."""
    return str(getattr(row, "text", None) or getattr(row, "prompt", ""))


def id_of(row: Record) -> str:
    """The id of a row, of any record that has one."""
    return str(getattr(row, "id", ""))


def task_of(row: Record) -> str:
    """The task of a row; of a record without one, its source without the mark of known dirt."""
    return str(getattr(row, "task", None) or getattr(row, "source", "").partition("+")[0])


def difficulty_of(row: Record) -> int:
    """The band of a row; 0 where it is not known."""
    return getattr(row, "difficulty", None) or 0


SELECTORS: dict[str, Callable[..., Iterable[Record]]] = {
    "all": everything,
    "first": first,
    "sample": sample,
    "balanced": balanced,
    "hardest": hardest,
    "by_task": by_task,
    "one_shot": one_shot,
}
