"""Pretraining documents: plain text about the tasks, never in the chat format.

Like text from the web, a share of the worked solutions is wrong, so that the base model
slips when it samples and the later stages have something to mend; and some solutions were
checked by someone who noted the result, so that a judge has something to build on. Every
problem is of the train split.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from posttrain.tasks import TASKS, Problem, arithmetic, split_of
from posttrain.tasks.mistakes import Step, near_miss, step

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


_MISTAKES = {
    "slip": 0.45,
    "distractor": 0.15,
    "wrong_operation": 0.15,
    "skipped_step": 0.08,
    "wrong_answer": 0.12,
    "missing_answer": 0.05,
}


class Document(NamedTuple):
    """A text in two parts: what is given, and what follows from it."""

    given: str
    rest: str


class Mix(NamedTuple):
    """Shares of the corpus (drills take the rest); of mistakes in worked solutions; of worked
    solutions and drills with a note whether they are right, half of which are not; and of word
    problems and drills with a mark at every line."""

    arithmetic: float = 0.6
    knights_knaves: float = 0.06
    countdown: float = 0.06
    mistakes: float = 0.14
    checked: float = 0.3
    marked: float = 0.0


def documents(rng: random.Random, mix: Mix = Mix()) -> Iterator[Document]:
    """An endless stream of documents of about 40 to 150 tokens."""
    names = ("arithmetic", "knights_knaves", "countdown", "drill")
    shares = (mix.arithmetic, mix.knights_knaves, mix.countdown)
    weights = (*shares, 1.0 - sum(shares))
    while True:
        name = rng.choices(names, weights)[0]
        yield drill(rng, mix) if name == "drill" else _worked(rng, name, mix)


def _worked(rng: random.Random, task: str, mix: Mix) -> Document:
    """A problem of the train split with a worked, at times wrong, at times checked, solution."""
    problem = _train_problem(rng, task)
    given = rng.choice(_LAYOUTS).format(text=problem.text) if mix.marked else ""
    if mix.marked and task == "arithmetic" and rng.random() < mix.marked:
        return Document(given, _marked_solution(rng, problem))
    checked = rng.random() < mix.checked
    right = rng.random() >= (0.5 if checked else mix.mistakes)
    solution = problem.solution if right else _mistaken(rng, task, problem)
    given = given or rng.choice(_LAYOUTS).format(text=problem.text)
    return Document(given, solution + _note(right) if checked else solution)


def _mistaken(rng: random.Random, task: str, problem: Problem) -> str:
    if task == "arithmetic":
        return arithmetic.corrupt(rng, problem, _MISTAKES)[0]
    return TASKS[task].corrupt(rng, problem)[0]


def _marked_solution(rng: random.Random, problem: Problem) -> str:
    """A solution, wrong in one of two, each line marked: right until the first mistake."""
    true = problem.solution.split("\n")
    wrong = _mistaken(rng, "arithmetic", problem).split("\n")
    lines = true if rng.random() < 0.5 else wrong
    marks = (lines[: at + 1] == true[: at + 1] for at in range(len(lines)))
    return "\n".join(f"{line} {_MARKS[mark]}" for line, mark in zip(lines, marks, strict=True))


_MARKS = {True: "right", False: "wrong"}


def _note(right: bool) -> str:
    return f"\nChecked: {_MARKS[right]}"


def _train_problem(rng: random.Random, task: str) -> Problem:
    while True:
        problem = TASKS[task].generate(rng, rng.choices((1, 2, 3, 4), (3, 4, 3, 2))[0])
        if split_of(problem.text) == "train":
            return problem


def drill(rng: random.Random, mix: Mix = Mix()) -> Document:
    """Eight equations, one a line, over the range of numbers that the word problems use; or up to
    four of them, one of which may be wrong, and the note of someone who checked; or eight that
    are marked one by one."""
    if mix.marked and rng.random() < mix.marked:
        return Document("", "\n".join(_marked_equation(rng) for _ in range(8)))
    if rng.random() >= mix.checked:
        return Document("", "\n".join(str(_equation(rng)) for _ in range(8)))
    equations = [_equation(rng) for _ in range(rng.randint(1, 4))]
    right = rng.random() < 0.5
    if not right:
        at = rng.randrange(len(equations))
        near = max(equations[at].result + rng.choice((-10, -2, -1, 1, 2, 10)), 0)
        equations[at] = equations[at]._replace(result=near)
    return Document("", "\n".join(map(str, equations)) + _note(right))


def _marked_equation(rng: random.Random) -> str:
    equation = _equation(rng)
    given = equation.result if rng.random() < 0.5 else near_miss(equation.result, rng)
    return f"{equation._replace(result=given)} {_MARKS[given == equation.result]}"


def _equation(rng: random.Random) -> Step:
    """A right equation with a result of 1 to 999."""
    while True:
        op = rng.choice("+-**//")
        if op in "+-":
            equation = step(rng.randint(2, 900), op, rng.randint(2, 200))
        elif op == "*":
            equation = step(rng.randint(2, 200), op, rng.randint(2, 40))
        else:
            divisor = rng.randint(2, 12)
            equation = step(divisor * rng.randint(2, 999 // divisor), op, divisor)
        if 1 <= equation.result <= 999:
            return equation
