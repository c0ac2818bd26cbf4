"""Different ways to one answer (UI-Ins, arXiv:2510.20286), in the form of text."""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from posttrain.records import Demonstration, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of


def perspectives(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    n: Annotated[int, Field(ge=2)] = 2,
    alike: Annotated[float, Field(gt=0, le=1)] = 0.8,
) -> Iterable[Record]:
    """Of each prompt with `n` or more different demonstrations, the `n` that are least alike.

    The demonstrations of a prompt are its perspectives. Likeness is the Jaccard index of their
    words; from `alike` on (assumed) two are one perspective, so no prompt gets the same one twice.
    The first demonstration is always kept. Prompts with fewer perspectives are left out.
    """
    by_prompt: dict[str, list[Demonstration]] = defaultdict(list)
    for row in all_of(rows, Demonstration):
        by_prompt[row.prompt_id].append(row)
    for group in by_prompt.values():
        places = least_alike([words(row.response) for row in group], n, alike)
        if len(places) == n:
            yield from (group[at] for at in sorted(places))


def words(text: str) -> set[str]:
    """The words and numbers of a text."""
    return set(re.findall(r"\w+", text.lower()))


def least_alike(bags: Sequence[set[str]], n: int, alike: float) -> list[int]:
    """Places of at most `n` bags: the first, then whichever is least like any taken."""
    taken = [0]
    while len(taken) < n:
        nearest = [max(jaccard(bag, bags[at]) for at in taken) for bag in bags]
        best = min(range(len(bags)), key=nearest.__getitem__)
        if nearest[best] >= alike:
            break
        taken.append(best)
    return taken


def jaccard(one: set[str], other: set[str]) -> float:
    """The share of common words; 1 for two empty texts."""
    return len(one & other) / len(one | other) if one | other else 1.0
