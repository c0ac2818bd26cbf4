"""Generated rows of a procedural task, with known dirt.

A dirty row says so at the end of its source, `procedural/arithmetic+wrong_answer`, for
tests and reports to measure curation by; no filter reads it.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt

from posttrain.errors import ConfigError, Fault
from posttrain.raw.sources.dirt import DIRT, Stock
from posttrain.raw.sources.source import Skipped
from posttrain.records import RawRow
from posttrain.tasks import BANDS, TASKS, Problem, generate_many

TaskName = Literal["arithmetic", "knights_knaves", "countdown", "bugfix"]

_PART = 1_000_003
EVEN: Mapping[int, float] = dict.fromkeys(BANDS, 1.0)
SHARES: Mapping[str, float] = {
    "exact_duplicate": 0.03,
    "near_duplicate": 0.03,
    "wrong_answer": 0.03,
    "contaminated": 0.02,
    "malformed": 0.02,
}


class _Made(NamedTuple):
    problem: Problem
    row: RawRow


def procedural(
    seed: int,
    /,
    *,
    task: TaskName = "arithmetic",
    demonstrations: NonNegativeInt = 2000,
    preferences: NonNegativeInt = 2000,
    prompts: NonNegativeInt = 2000,
    evaluation: NonNegativeInt = 600,
    difficulty: Mapping[int, NonNegativeFloat] = EVEN,
    dirt: Mapping[str, NonNegativeFloat] = SHARES,
    part: NonNegativeInt = 0,
) -> Iterator[RawRow | Skipped]:
    """Yield clean rows of four kinds, no problem twice, and dirty rows between them.

    `difficulty` gives the weights of the bands. `dirt` gives dirty rows as a share of the
    clean rows of their kind; a kind has only the dirt that makes sense for
    it, and a dirty copy always comes after the row it copies. Sources of one task with other
    `part`s draw other problems, as for demonstrations that are easier than the prompts.
    """
    _check(difficulty, dirt)
    seed += part * _PART
    rng = random.Random(f"{seed}/procedural/{task}")
    counts = (demonstrations, preferences, prompts)
    train = _problems(task, sum(counts), difficulty, "train", seed)
    held_out = _problems(task, evaluation, difficulty, "eval", seed)
    source = f"procedural/{task}"
    made = {
        "evaluation": [_Made(p, prompt(source, task, p, "eval")) for p in held_out],
        "demonstrations": [
            _Made(p, demonstration(source, task, p)) for p in train[:demonstrations]
        ],
        "preferences": [
            _Made(p, preference(source, task, p, rng))
            for p in train[demonstrations : demonstrations + preferences]
        ],
        "prompts": [
            _Made(p, prompt(source, task, p, "train"))
            for p in train[demonstrations + preferences :]
        ],
    }
    for kind, clean in made.items():
        yield from _soiled(kind, clean, held_out, task, dirt, rng)


def prompt(
    source: str, task: str, problem: Problem, split: Literal["train", "eval"] = "train"
) -> RawRow:
    """A question with its answer."""
    return RawRow.of(
        source=source,
        task=task,
        prompt=problem.text,
        answer=problem.answer,
        split=split,
        difficulty=problem.difficulty,
    )


def demonstration(source: str, task: str, problem: Problem) -> RawRow:
    """A question with its worked solution."""
    row = prompt(source, task, problem)
    return remade(row, response=problem.solution)


def preference(source: str, task: str, problem: Problem, rng: random.Random) -> RawRow:
    """The worked solution against one with a mistake."""
    wrong, _ = TASKS[task].corrupt(rng, problem)
    return remade(prompt(source, task, problem), chosen=problem.solution, rejected=wrong)


def remade(row: RawRow, **changes: str | None) -> RawRow:
    """The row with changed fields and the id of its new content."""
    return RawRow.of(**(row.model_dump(exclude={"id"}) | changes))


def _problems(
    task: str,
    count: int,
    difficulty: Mapping[int, float],
    split: Literal["train", "eval"],
    seed: int,
) -> list[Problem]:
    if not count:
        return []
    try:
        return generate_many(TASKS[task], count, difficulty, split, seed)
    except ValueError as error:
        where = "raw.sources.procedural"
        mend = "lower the counts or widen `difficulty`"
        raise ConfigError(Fault("too few distinct problems", where, str(error), mend)) from None


def _soiled(
    kind: str,
    clean: list[_Made],
    held_out: list[Problem],
    task: str,
    shares: Mapping[str, float],
    rng: random.Random,
) -> Iterator[RawRow]:
    """The clean rows in order, each dirty row somewhere after the row it was made from."""
    stock = Stock(held_out, MAKERS[kind], task)
    placed: list[tuple[float, RawRow]] = [(float(i), each.row) for i, each in enumerate(clean)]
    for name, share in shares.items():
        make = DIRT[name].get(kind)
        for _ in range(round(share * len(clean)) if make else 0):
            at = rng.randrange(len(clean))
            dirty = make and make(rng, clean[at].row, clean[at].problem, stock)
            if dirty:
                row = remade(dirty, source=f"procedural/{task}+{name}")
                placed.append((rng.uniform(at, len(clean)), row))
    for _, row in sorted(placed, key=lambda place: place[0]):
        yield row


MAKERS: dict[str, Callable[[str, str, Problem, random.Random], RawRow]] = {
    "evaluation": lambda source, task, problem, rng: prompt(source, task, problem, "eval"),
    "demonstrations": lambda source, task, problem, rng: demonstration(source, task, problem),
    "preferences": preference,
    "prompts": lambda source, task, problem, rng: prompt(source, task, problem),
}


def _check(difficulty: Mapping[int, float], dirt: Mapping[str, float]) -> None:
    where = "raw.sources.procedural"
    faults = [
        Fault(f"unknown band {band}", f"{where}.difficulty", f"bands are {BANDS}", "mend the key")
        for band in difficulty
        if band not in BANDS
    ]
    if not sum(difficulty.values()):
        why = "no band has a weight above 0"
        faults.append(Fault("no difficulty", f"{where}.difficulty", why, "give one"))
    faults += [
        Fault(f"unknown dirt `{name}`", f"{where}.dirt", "no such kind", f"{', '.join(DIRT)}")
        for name in dirt
        if name not in DIRT
    ]
    if faults:
        raise ConfigError(*faults)
