"""Knights tell the truth, knaves lie: who is what, from one statement each.

Bands: 1 and 2 have two people, 3 and 4 three; the even bands have more statements about
two people at once. Every puzzle has exactly one solution, found by trying all cases, and
the worked solution is that search: cases in order, each stopped at the first speaker whose
words do not fit, until one fits.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from posttrain.tasks.task import MARK, Problem, Task, check_band, final_answer

_NAMES = ("Ann", "Ben", "Eva", "Tom", "Mia", "Max", "Zoe", "Leo", "Sam", "Nora", "Omar", "Ivan")
_KIND = {True: "knight", False: "knave"}

Case = tuple[bool, ...]


class _Claim(NamedTuple):
    words: str
    holds: Callable[[bool, bool], bool]
    compound: bool


_CLAIMS = (
    _Claim("{b} is a knight", lambda _, b: b, False),
    _Claim("{b} is a knave", lambda _, b: not b, False),
    _Claim("{b} and I are alike", lambda a, b: a == b, True),
    _Claim("{b} and I differ", lambda a, b: a != b, True),
    _Claim("{b} or I lie", lambda a, b: not (a and b), True),
    _Claim("{b} and I both lie", lambda a, b: not (a or b), True),
    _Claim("{b} is a knave or I am a knight", lambda a, b: a or not b, True),
)


class _Statement(NamedTuple):
    speaker: int
    about: int
    claim: _Claim

    def fits(self, case: Case) -> bool:
        """A knight's words are true and a knave's are false."""
        spoken = self.claim.holds(case[self.speaker], case[self.about])
        return spoken == case[self.speaker]


def _search(statements: list[_Statement]) -> tuple[list[str], list[Case]]:
    """The lines of the search up to the first fit (speaker indices in braces), and all fits."""
    lines: list[str] = []
    fits: list[Case] = []
    for case in itertools.product((True, False), repeat=len(statements)):
        misfit = next((each for each in statements if not each.fits(case)), None)
        verdict = "yes" if misfit is None else f"no, {{{misfit.speaker}}}"
        if not fits:
            lines.append(f"{' '.join(_KIND[kind] for kind in case)}: {verdict}")
        if misfit is None:
            fits.append(case)
    return lines, fits


def generate(rng: random.Random, difficulty: int) -> Problem:
    """Draw a puzzle with exactly one solution.

    Raises ValueError for a difficulty outside 1..4.
    """
    check_band(difficulty)
    size = 2 if difficulty <= 2 else 3
    names = rng.sample(_NAMES, size)
    while True:
        statements = [
            _Statement(speaker, rng.choice([i for i in range(size) if i != speaker]), claim)
            for speaker, claim in enumerate(rng.choices(_CLAIMS, k=size))
        ]
        compounds = sum(each.claim.compound for each in statements)
        if (compounds >= 2) != (difficulty % 2 == 0):
            continue
        lines, fits = _search(statements)
        if len(fits) == 1:
            break
    spoken = [
        f"{names[each.speaker]}: {each.claim.words.format(b=names[each.about])}."
        for each in statements
    ]
    text = " ".join(["Knights tell the truth, knaves lie.", *spoken, "Who is what?"])
    answer = _name(names, fits[0])
    working = "\n".join(lines).format(*names)
    return Problem(text, answer, f"{working}\n{MARK} {answer}", difficulty)


def _name(names: list[str], case: Case) -> str:
    return ", ".join(f"{name} {_KIND[kind]}" for name, kind in zip(names, case, strict=True))


def verify(text: str, answer: str, response: str) -> bool:
    """Whether the final answer names everyone once with the right kind, in any order."""
    given = final_answer(response)
    if given is None:
        return False
    return sorted(part.strip() for part in given.split(",")) == sorted(answer.split(", "))


def corrupt(rng: random.Random, problem: Problem) -> tuple[str, str]:
    """A wrong solution: a search stopped too early, a wrong answer, or none."""
    *working, _ = problem.solution.split("\n")
    names = [part.split()[0] for part in problem.answer.split(", ")]
    kind = rng.choice(["slip", "wrong_answer", "missing_answer"])
    if kind == "missing_answer":
        return "\n".join(working), kind
    if kind == "slip" and len(working) > 1:
        stop = rng.randrange(len(working) - 1)
        case = tuple(word == "knight" for word in working[stop].split(":")[0].split())
        lines = [*working[:stop], f"{' '.join(_KIND[each] for each in case)}: yes"]
        return "\n".join([*lines, f"{MARK} {_name(names, case)}"]), kind
    right = tuple(part.split()[1] == "knight" for part in problem.answer.split(", "))
    wrong = rng.choice(
        [c for c in itertools.product((True, False), repeat=len(right)) if c != right]
    )
    return "\n".join([*working, f"{MARK} {_name(names, wrong)}"]), "wrong_answer"


TASK = Task("knights_knaves", generate, verify, corrupt)
