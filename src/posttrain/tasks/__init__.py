"""Procedural task families with exact verifiers, and the train/eval split over them.

A problem's text alone decides its split, so no problem can be in both, whoever draws it
and with whatever seed. To add a family, write a module with a `TASK` and add it to TASKS.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Literal

from posttrain.tasks import arithmetic, bugfix, countdown, knights_knaves
from posttrain.tasks.task import BANDS, MARK, Problem, Task, final_answer

__all__ = [
    "BANDS", "MARK", "TASKS", "Problem", "Split", "Task", "final_answer", "generate_many",
    "split_of",
]  # fmt: skip

Split = Literal["train", "eval"]

TASKS: dict[str, Task] = {
    task.name: task for task in (arithmetic.TASK, knights_knaves.TASK, countdown.TASK, bugfix.TASK)
}

_EVAL_SHARE = 1 / 8
_TRIES_PER_PROBLEM = 200


def split_of(text: str) -> Split:
    """The split a problem text belongs to, by a hash that ignores case and spacing."""
    normalised = " ".join(text.lower().split())
    digest = hashlib.sha256(normalised.encode("utf-8", "surrogatepass")).digest()
    return "eval" if digest[0] < 256 * _EVAL_SHARE else "train"


def generate_many(
    task: Task, n: int, difficulty_weights: Mapping[int, float], split: Split, seed: int
) -> list[Problem]:
    """Draw `n` distinct problems of one split, with bands in the given proportions.

    Raises ValueError when the bands hold too few distinct problems.
    """
    rng = random.Random(seed)
    bands, weights = list(difficulty_weights), list(difficulty_weights.values())
    seen: set[str] = set()
    problems: list[Problem] = []
    for _ in range(n * _TRIES_PER_PROBLEM):
        if len(problems) == n:
            return problems
        problem = task.generate(rng, rng.choices(bands, weights)[0])
        if problem.text not in seen and split_of(problem.text) == split:
            seen.add(problem.text)
            problems.append(problem)
    if len(problems) < n:
        raise ValueError(
            f"{task.name}: only {len(problems)} of {n} distinct {split} problems found "
            f"in the bands {bands}; ask for fewer or add bands"
        )
    return problems
