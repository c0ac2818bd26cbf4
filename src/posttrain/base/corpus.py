"""Pretraining documents: plain text about the tasks, never in the chat format.

Like text from the web, a share of the worked solutions is wrong, so that the base model
slips when it samples and the later stages have something to mend. Every problem is of the
train split.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from posttrain.tasks import TASKS, Problem, split_of
from posttrain.tasks.mistakes import step

# The chat roles, and common words that the tasks lack, get tokens of their own through these.
VOCABULARY_LINES = (
    "user\nassistant\nsystem\n",
    "the of and to in that was it for on with as his at by from this but not or which you are"
    " an were her she they we their one there been all would who what when will more no if out"
    " so up said into than its time only could them other new some these two may then do first"
    " any my now such like our over me even most made after also did many before must through"
    " back years where much your way well down should because each just those people how too"
    " little state good very make world still own see men work long get here between both life"
    " being under never day same another know while last might us great old year off come since"
    " against go came right used take three\n",
)

_LAYOUTS = (
    "Problem: {text}\nWorking:\n",
    "Question: {text}\nSolution:\n",
    "{text}\n\n",
    "Exercise. {text}\nOne way to do it:\n",
)


class Document(NamedTuple):
    """A text in two parts: what is given, and what follows from it."""

    given: str
    rest: str


class Mix(NamedTuple):
    """Shares of the corpus (drills take the rest), and of mistakes in worked solutions."""

    arithmetic: float = 0.62
    knights_knaves: float = 0.08
    countdown: float = 0.08
    mistakes: float = 0.2


def documents(rng: random.Random, mix: Mix = Mix()) -> Iterator[Document]:
    """An endless stream of documents of about 40 to 150 tokens."""
    names = ("arithmetic", "knights_knaves", "countdown", "drill")
    shares = (mix.arithmetic, mix.knights_knaves, mix.countdown)
    weights = (*shares, 1.0 - sum(shares))
    while True:
        name = rng.choices(names, weights)[0]
        yield drill(rng) if name == "drill" else _worked(rng, name, mix.mistakes)


def _worked(rng: random.Random, task: str, mistakes: float) -> Document:
    """A problem of the train split with a worked, at times wrong, solution."""
    problem = _train_problem(rng, task)
    solution = problem.solution
    if rng.random() < mistakes:
        solution, _ = TASKS[task].corrupt(rng, problem)
    return Document(rng.choice(_LAYOUTS).format(text=problem.text), solution)


def _train_problem(rng: random.Random, task: str) -> Problem:
    while True:
        problem = TASKS[task].generate(rng, rng.choices((1, 2, 3, 4), (3, 4, 3, 2))[0])
        if split_of(problem.text) == "train":
            return problem


def drill(rng: random.Random) -> Document:
    """Eight equations, one a line, over the range of numbers that the word problems use."""
    lines: list[str] = []
    while len(lines) < 8:
        op = rng.choice("+-**//")
        if op in "+-":
            equation = step(rng.randint(2, 900), op, rng.randint(2, 200))
        elif op == "*":
            equation = step(rng.randint(2, 200), op, rng.randint(2, 40))
        else:
            divisor = rng.randint(2, 12)
            equation = step(divisor * rng.randint(2, 999 // divisor), op, divisor)
        if 1 <= equation.result <= 999:
            lines.append(str(equation))
    return Document("", "\n".join(lines))
