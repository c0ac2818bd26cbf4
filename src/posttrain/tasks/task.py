"""What a task is: a seeded problem generator, an exact verifier and a source of mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MARK = "####"
BANDS = (1, 2, 3, 4)


class Problem(NamedTuple):
    """One problem with a worked solution, whose last line is `#### answer`."""

    text: str
    answer: str
    solution: str
    difficulty: int


@dataclass(frozen=True)
class Task:
    """A family of problems.

    `generate(rng, difficulty)` draws a problem of band 1..4; `verify(text, answer,
    response)` never raises; `corrupt(rng, problem)` gives a solution that verifies as
    wrong, and the kind of its mistake.
    """

    name: str
    generate: Callable[[random.Random, int], Problem]
    verify: Callable[[str, str, str], bool]
    corrupt: Callable[[random.Random, Problem], tuple[str, str]]


def final_answer(response: str) -> str | None:
    """Everything after the last `####`, stripped; None when there is no mark (GSM8K's rule)."""
    _, mark, tail = response.rpartition(MARK)
    return tail.strip() if mark else None


def check_band(difficulty: int) -> None:
    """Raise ValueError for a difficulty outside 1..4."""
    if difficulty not in BANDS:
        raise ValueError(f"difficulty {difficulty}: the bands are {BANDS}")
