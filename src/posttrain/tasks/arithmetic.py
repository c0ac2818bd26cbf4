"""Short word problems: one to four operations on a running quantity, with distractors.

The difficulty band is the number of equations in the solution. Every number that is
written or computed is a whole number from 2 to 999.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from posttrain.tasks.mistakes import MISTAKES, SHARES, Step, parse, step, write
from posttrain.tasks.task import Problem, Task, check_band, final_answer

LARGEST = 999
LARGEST_OPERAND = 150

_HER = ("Ann", "Eva", "Mia", "Zoe", "Lily", "Nora", "Rosa", "Ines")
_HIM = ("Ben", "Tom", "Max", "Leo", "Sam", "Hugo", "Omar", "Ivan")
_THINGS = (
    "apples", "pens", "books", "cards", "shells", "stamps", "eggs", "beads",
    "coins", "nuts", "keys", "cups", "plums", "balls", "seeds", "stones",
)  # fmt: skip

_GAINS = (
    "{They} buys {n} more.",
    "Then {they} finds {n} more.",
    "{other} gives {them} {n}.",
    "{They} gets {n} from {other}.",
    "In the evening {n} more arrive.",
)
_LOSSES = (
    "{They} loses {n}.",
    "{They} gives {n} to {other}.",
    "Then {other} takes {n} of them.",
    "{They} sells {n}.",
    "{n} of them break.",
)
_GROWTHS = ("Soon {they} has {n} times as many.", "{other} makes that {n} times as many.")
_SHARES = (
    "{They} splits them into {n} equal piles and keeps one.",
    "{n} people, {hero} among them, share them equally.",
)
_DOUBLINGS = ("Then {they} doubles the number.", "The number doubles overnight.")
_HALVINGS = ("Then {they} gives away half.", "{They} keeps only half of them.")
_DISTRACTORS = (
    "{third} has {n} {stuff}.",
    "{hero} weighs {n} kilos.",
    "The walk takes {n} minutes.",
    "There are {n} {stuff} on the table.",
    "It is day {n} of the year.",
)
_QUESTIONS = (
    "How many {things} does {hero} have now?",
    "How many {things} has {hero} in the end?",
    "How many {things} are left with {hero}?",
)
_OPERATIONS = "++++----**//"


class _Opening(NamedTuple):
    sentences: str
    steps: int


_OPENINGS = (
    _Opening("{hero} has {a} {things}.", 0),
    _Opening("There are {a} {things} in the bag of {hero}.", 0),
    _Opening("{hero} buys {b} boxes of {c} {things}.", 1),
    _Opening("{hero} has {b} bags with {c} {things} in each.", 1),
    _Opening("{hero} picks {a} {things} on Monday and {d} on Friday.", 1),
    _Opening("{other} has {a} {things}. {hero} has {d} more than {other}.", 1),
    _Opening("{other} has {c} {things}. {hero} has {b} times as many.", 1),
    _Opening("{hero} has {a} {things}. {other} has {d} more than {hero} and gives {hero} all.", 2),
)


def _opening_steps(sentences: str, a: int, b: int, c: int, d: int) -> list[Step]:
    if "{b}" in sentences:
        return [step(b, "*", c)]
    if "gives {hero} all" in sentences:
        return [step(a, "+", d), step(a, "+", a + d)]
    return [step(a, "+", d)] if "{d}" in sentences else []


def _change(rng: random.Random, value: int) -> tuple[str, Step]:
    """A sentence that changes the running quantity, and its equation."""
    op = rng.choice(_OPERATIONS)
    if op in "*/" and rng.random() < 0.4:
        return rng.choice(_DOUBLINGS if op == "*" else _HALVINGS), step(value, op, 2)
    if op == "*":
        return rng.choice(_GROWTHS), step(value, op, rng.randint(2, 12))
    if op == "/":
        return rng.choice(_SHARES), step(value, op, rng.randint(2, 12))
    number = rng.randint(2, LARGEST_OPERAND if op == "+" else max(2, min(value, LARGEST_OPERAND)))
    return rng.choice(_GAINS if op == "+" else _LOSSES), step(value, op, number)


def _sound(each: Step) -> bool:
    exact = each.op != "/" or each.left % each.right == 0
    return exact and 2 <= each.result <= LARGEST


def generate(rng: random.Random, difficulty: int) -> Problem:
    """Draw a word problem whose solution has `difficulty` equations.

    Raises ValueError for a difficulty outside 1..4.
    """
    check_band(difficulty)
    while True:
        problem = _draw(rng, difficulty)
        if problem is not None:
            return problem


def _draw(rng: random.Random, difficulty: int) -> Problem | None:
    """One attempt; None when a number leaves the allowed range."""
    female = rng.random() < 0.5
    hero = rng.choice(_HER if female else _HIM)
    other, third = rng.sample([name for name in (*_HER, *_HIM) if name != hero], 2)
    things, stuff = rng.sample(_THINGS, 2)
    they, them = ("she", "her") if female else ("he", "him")
    words = {
        "hero": hero, "other": other, "third": third, "things": things, "stuff": stuff,
        "they": they, "They": they.capitalize(), "them": them,
    }  # fmt: skip
    opening = rng.choice([each for each in _OPENINGS if each.steps <= difficulty])
    a, d = rng.randint(2, LARGEST_OPERAND), rng.randint(2, LARGEST_OPERAND)
    b, c = rng.randint(2, 19), rng.randint(2, 40)
    sentences = [opening.sentences.format(**words, a=a, b=b, c=c, d=d)]
    steps = _opening_steps(opening.sentences, a, b, c, d)
    while len(steps) < difficulty:
        sentence, equation = _change(rng, steps[-1].result if steps else a)
        if not _sound(equation):
            return None
        sentences.append(sentence.format(**words, n=equation.right))
        steps.append(equation)
    if not all(_sound(each) for each in steps):
        return None
    if rng.random() < 0.4:
        noise = rng.choice(_DISTRACTORS).format(**words, n=rng.randint(2, 99))
        sentences.insert(rng.randint(1, len(sentences)), noise)
    sentences.append(rng.choice(_QUESTIONS).format(**words))
    answer = str(steps[-1].result)
    return Problem(" ".join(sentences), answer, write(steps, answer), difficulty)


def verify(text: str, answer: str, response: str) -> bool:
    """Whether what follows the last `####` is the answer, character by character."""
    return final_answer(response) == answer


def corrupt(
    rng: random.Random, problem: Problem, shares: Mapping[str, float] = SHARES
) -> tuple[str, str]:
    """A wrong solution and the kind of its mistake, a key of MISTAKES drawn by its share."""
    steps = parse(problem.solution)
    used = {number for each in steps for number in each}
    spare = [int(n) for n in re.findall(r"\d+", problem.text) if int(n) not in used]
    while True:
        kind = rng.choices([*shares], [*shares.values()])[0]
        if kind == "distractor" and not spare:
            continue
        wrong = MISTAKES[kind](rng, steps, spare)
        plausible = re.search(r"-\d", wrong) is None
        if plausible and not verify(problem.text, problem.answer, wrong):
            return wrong, kind


TASK = Task("arithmetic", generate, verify, corrupt)
