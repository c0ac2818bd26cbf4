"""A story and a file of equations that work it out, one of them wrong; the answer is the patch.

The stories are those of `arithmetic`. The bug is a slip in a result, a number that is not the
story's, or a wrong sign; the answer is a unified diff of that line, without lines around it. The
difficulty band is the number of equations.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from posttrain.tasks import arithmetic
from posttrain.tasks.mistakes import Step, near_miss, parse
from posttrain.tasks.task import Problem, Task

_HEAD = "--- a/steps\n+++ b/steps\n"


def generate(rng: random.Random, difficulty: int) -> Problem:
    """Draw a story with a file in which one line is wrong.

    Raises ValueError for a difficulty outside 1..4.
    """
    told = arithmetic.generate(rng, difficulty)
    right = parse(told.solution)
    at = rng.randrange(len(right))
    wrong = right[at]
    while wrong == right[at] or min(wrong.left, wrong.right, wrong.result) < 1:
        wrong = BUGS[rng.choice([*BUGS])](rng, right[at])
    shown = "\n".join(map(str, [*right[:at], wrong, *right[at + 1 :]]))
    answer = patch(at, wrong, right[at])
    return Problem(f"{told.text}\nFix the bug:\n{shown}", answer, answer, difficulty)


def patch(at: int, old: Step, new: Step) -> str:
    """The unified diff that puts a line in the place of line `at`, counted from 0."""
    return f"{_HEAD}@@ -{at + 1} +{at + 1} @@\n-{old}\n+{new}"


def verify(text: str, answer: str, response: str) -> bool:
    """Whether the response is the patch; for one line without its surroundings there is one."""
    return response.strip() == answer


def corrupt(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """A patch that does not mend the file: with a slip, of another line, or without its head."""
    old, new = parse(problem.answer)
    at = parse(problem.text.split("\nFix the bug:\n")[1]).index(old)
    kind = rng.choice(["slip", "other_line", "no_head"])
    if kind == "slip":
        slipped = new._replace(result=near_miss(new.result, rng))
        return patch(at, old, slipped), kind
    if kind == "other_line":
        return patch(at + 1, old, new), kind
    return problem.answer.removeprefix(_HEAD), kind


def wrong_number(rng: random.Random, right: Step) -> Step:
    """One operand is a near miss."""
    if rng.random() < 0.5:
        return right._replace(left=near_miss(right.left, rng))
    return right._replace(right=near_miss(right.right, rng))


BUGS: dict[str, Callable[[random.Random, Step], Step]] = {
    "slip": lambda rng, right: right._replace(result=near_miss(right.result, rng)),
    "wrong_number": wrong_number,
    "wrong_sign": lambda rng, right: right._replace(op=rng.choice("+-*/".replace(right.op, ""))),
}

TASK = Task("bugfix", generate, verify, corrupt)
