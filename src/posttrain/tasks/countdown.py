"""Countdown: combine some of the given numbers, each at most once, to reach the target.

Bands: 1 has three numbers under + and -, 2 three numbers under all four operations, 3 and
4 the same with four numbers. The answer field is the puzzle itself (`16 from 2, 3, 5`), as
every expression that reaches the target is right.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from fractions import Fraction

from posttrain.tasks.mistakes import Step, parse, step, write
from posttrain.tasks.task import Problem, Task, check_band, final_answer

LARGEST = 100
# Longer than any expression of four numbers, short enough that no parse is deep or slow.
_EXPRESSION = re.compile(r"[0-9+\-*/() ]{1,60}", re.ASCII)
_TOO_BIG = 10**6


def generate(rng: random.Random, difficulty: int) -> Problem:
    """Draw a puzzle that has a solution using all its numbers.

    Raises ValueError for a difficulty outside 1..4.
    """
    check_band(difficulty)
    operations = "+-" if difficulty % 2 else "+-*/"
    while True:
        chain = [rng.randint(2, 20) for _ in range(3 if difficulty <= 2 else 4)]
        steps = _chain(chain, [rng.choice(operations) for _ in chain[1:]])
        if steps is not None and (difficulty % 2 or any(each.op in "*/" for each in steps)):
            break
    shown = rng.sample(chain, len(chain))
    target = steps[-1].result
    numbers = ", ".join(map(str, shown))
    return Problem(
        f"Use the numbers {numbers} to make {target}.",
        f"{target} from {numbers}",
        write(steps, _expression(steps)),
        difficulty,
    )


def _chain(numbers: list[int], operations: list[str]) -> list[Step] | None:
    """Apply the operations from left to right; None when a result is not in 1..100."""
    value, steps = numbers[0], []
    for op, number in zip(operations, numbers[1:], strict=True):
        if op == "/" and value % number:
            return None
        steps.append(step(value, op, number))
        value = steps[-1].result
        if not 1 <= value <= LARGEST:
            return None
    return steps


def _expression(steps: list[Step]) -> str:
    """The left-nested expression of a chain, e.g. `(3 + 5) * 2`."""
    text = f"{steps[0].left} {steps[0].op} {steps[0].right}"
    for each in steps[1:]:
        text = f"({text}) {each.op} {each.right}"
    return text


def _evaluate(node: ast.expr, used: Counter[int]) -> Fraction | None:
    """The value of an expression of whole numbers and + - * /; counts the numbers it uses."""
    match node:
        case ast.Constant(value=int() as value) if value <= _TOO_BIG:
            used[value] += 1
            return Fraction(value)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, used), _evaluate(right, used)
            if a is None or b is None or (isinstance(op, ast.Div) and b == 0):
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div():
                    return a / b
    return None


def verify(text: str, answer: str, response: str) -> bool:
    """Whether the final expression equals the target and uses each number at most once."""
    given = final_answer(response)
    if given is None or _EXPRESSION.fullmatch(given) is None:
        return False
    try:
        parsed = ast.parse(given, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    target, _, numbers = answer.partition(" from ")
    used: Counter[int] = Counter()
    value = _evaluate(parsed.body, used)
    return value == int(target) and used <= Counter(map(int, numbers.split(", ")))


def corrupt(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """A wrong solution: a miscalculated last step, a wrong sign, a made-up number, or no answer."""
    steps = parse(problem.solution)
    while True:
        kind = rng.choice(["slip", "wrong_operation", "foreign_number", "missing_answer"])
        at = rng.randrange(len(steps))
        first, op, rest = steps[0].left, [s.op for s in steps], [s.right for s in steps]
        if kind == "missing_answer":
            return "\n".join(map(str, steps)), kind
        if kind == "foreign_number":
            rest[at] = rng.randint(2, 20)
        else:
            op[at] = rng.choice([sign for sign in "+-*" if sign != op[at]])
        wrong = _chain([first, *rest], op)
        if wrong is None:
            continue
        if kind == "slip":
            # The target is claimed although the last line does not give it.
            wrong[-1] = wrong[-1]._replace(result=steps[-1].result)
        solution = write(wrong, _expression(wrong))
        if not verify(problem.text, problem.answer, solution):
            return solution, kind


TASK = Task("countdown", generate, verify, corrupt)
