"""Realistic mistakes in solutions that are written as equations, one a line.

A worked solution is `left op right = result` lines and a last line `#### answer`. A
mistake is made in one place and carried through the later lines, as a person would.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from posttrain.tasks.task import MARK

_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


class Step(NamedTuple):
    """One equation of a worked solution."""

    left: int
    op: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right} = {self.result}"


def step(left: int, op: str, right: int) -> Step:
    """A correct equation; division rounds down, as carried-through slips may not divide."""
    results = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}
    return Step(left, op, right, results[op])


def parse(solution: str) -> list[Step]:
    """The equations of a worked solution, in order."""
    return [
        Step(int(left), op, int(right), int(result))
        for left, op, right, result in _EQUATION.findall(solution)
    ]


def write(steps: list[Step], answer: str) -> str:
    """A worked solution: one equation a line, then `#### answer`."""
    return "\n".join([*(str(each) for each in steps), f"{MARK} {answer}"])


def carry(steps: list[Step], wrong: Step, at: int) -> list[Step]:
    """Put `wrong` at index `at` and recompute every later line that used its result."""
    changed = {steps[at].result: wrong.result}
    carried = [*steps[:at], wrong]
    for later in steps[at + 1 :]:
        redone = step(
            changed.get(later.left, later.left), later.op, changed.get(later.right, later.right)
        )
        changed[later.result] = redone.result
        carried.append(redone)
    return carried


def near_miss(value: int, rng: random.Random) -> int:
    """A near miss of `value`: a counting error, a carry lost or made up, or one wrong digit."""
    if rng.random() < 0.5:
        return value + rng.choice((-10, -2, -1, -1, 1, 1, 2, 10))
    digits = list(str(value))
    at = rng.randrange(len(digits))
    digits[at] = rng.choice([digit for digit in "123456789" if digit != digits[at]])
    return int("".join(digits))


def slip(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """One equation is miscalculated."""
    at = rng.randrange(len(steps))
    wrong = steps[at]._replace(result=near_miss(steps[at].result, rng))
    carried = carry(steps, wrong, at)
    return write(carried, str(carried[-1].result))


def distractor(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """A number that the story mentions but does not need takes the place of an operand."""
    at = rng.randrange(len(steps))
    wrong = step(steps[at].left, steps[at].op, rng.choice(spare or [steps[at].right + 1]))
    carried = carry(steps, wrong, at)
    return write(carried, str(carried[-1].result))


def wrong_operation(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """The right numbers under the wrong sign."""
    at = rng.randrange(len(steps))
    swap = {"+": "-*", "-": "+/", "*": "+/", "/": "-*"}[steps[at].op]
    carried = carry(steps, step(steps[at].left, rng.choice(swap), steps[at].right), at)
    return write(carried, str(carried[-1].result))


def skipped_step(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """One equation is left out; the next one goes on from what stood before it."""
    at = rng.randrange(len(steps))
    carried = carry(steps, steps[at]._replace(result=steps[at].left), at)
    del carried[at]
    return write(carried, str(carried[-1].result if carried else steps[at].left))


def wrong_answer(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """Every equation is right, but another number is given as the answer."""
    earlier = [number for each in steps for number in (each.left, each.right)]
    return write(steps, str(rng.choice([*earlier, near_miss(steps[-1].result, rng)])))


def missing_answer(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """The working stops before `####`."""
    return "\n".join(str(each) for each in steps)


def extra_step(rng: random.Random, steps: list[Step], spare: list[int]) -> str:
    """One equation too many: before the answer, or after it as if the story went on."""
    last = steps[-1].result
    number = rng.choice([*spare, *(each.right for each in steps)])
    more = step(last, rng.choice("++--*"), number)
    if rng.random() < 0.5:
        return write([*steps, more], str(more.result))
    return f"{write(steps, str(last))}\n{write([more], str(more.result))}"


MISTAKES: dict[str, Callable[[random.Random, list[Step], list[int]], str]] = {
    "slip": slip,
    "distractor": distractor,
    "wrong_operation": wrong_operation,
    "extra_step": extra_step,
    "skipped_step": skipped_step,
    "wrong_answer": wrong_answer,
    "missing_answer": missing_answer,
}

SHARES: dict[str, float] = {
    "slip": 0.5,
    "distractor": 0.1,
    "wrong_operation": 0.11,
    "extra_step": 0.13,
    "skipped_step": 0.05,
    "wrong_answer": 0.07,
    "missing_answer": 0.04,
}
"""How often each mistake is made. Slips lead, as they do among a policy's own mistakes; and what
lengthens a solution outweighs what shortens it, lest a judge learn to prefer length."""
