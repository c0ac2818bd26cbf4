"""The dirt that real collections hold, made on purpose: kind of dirt -> kind of row -> maker.

A maker takes a clean row and its problem and gives a dirty row, or None where the row offers
no hold for that dirt. What a dirty row is must follow from its text alone, so that a filter
can find it without the label.
"""

import random
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from posttrain.records import RawRow
from posttrain.tasks import MARK, TASKS, Problem

_FRESH_NAMES = ("Alex", "Kim", "Robin", "Sasha", "Jo", "Toni", "Charlie", "Noor")
_NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]+\b|\b[A-Z][a-z]+(?=:)")
_LONG = 12_000


class Stock(NamedTuple):
    """What makers may draw on beside the row: held-out problems, and how a row is made of one."""

    held_out: list[Problem]
    make: Callable[[str, str, Problem, random.Random], RawRow]
    task: str


Maker = Callable[[random.Random, RawRow, Problem, Stock], RawRow | None]


def _changed(row: RawRow, **changes: str | None) -> RawRow:
    return row.model_copy(update=changes)


def exact_duplicate(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """The same row again."""
    return row


def near_duplicate(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """The same problem in other spacing, case or punctuation, or with one person renamed."""
    edit = rng.choice((respaced, recased, repunctuated, renamed))
    return edit(rng, row)


def respaced(rng: random.Random, row: RawRow) -> RawRow:
    """Wrapped and padded, as text copied from a page is."""
    words = row.prompt.split(" ")
    breaks = [rng.choice((" ", " ", " ", "  ", "\n", "\t")) for _ in words]
    text = "".join(word + space for word, space in zip(words, breaks, strict=True))
    return _changed(row, prompt=f" {text}")


def recased(rng: random.Random, row: RawRow) -> RawRow:
    """All lower or all upper case."""
    return _changed(row, prompt=row.prompt.lower() if rng.random() < 0.5 else row.prompt.upper())


def repunctuated(rng: random.Random, row: RawRow) -> RawRow:
    """Full stops spaced out, doubled or exclaimed; the question mark gone."""
    stop = rng.choice((" .", "..", "!", ";"))
    return _changed(row, prompt=row.prompt.rstrip("?").replace(". ", f"{stop} "))


def renamed(rng: random.Random, row: RawRow) -> RawRow:
    """One person has another name throughout; without a person, the spacing changes."""
    names = sorted(set(_NAME.findall(row.prompt)) - set(_FRESH_NAMES))
    if not names:
        return respaced(rng, row)
    old, new = re.compile(rf"\b{rng.choice(names)}\b"), rng.choice(_FRESH_NAMES)
    texts = {"prompt": row.prompt, "answer": row.answer, "response": row.response}
    texts |= {"chosen": row.chosen, "rejected": row.rejected}
    return _changed(row, **{k: text and old.sub(new, text) for k, text in texts.items()})


def wrong_demonstration(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """A worked solution with a mistake in it."""
    return _changed(row, response=TASKS[stock.task].corrupt(rng, problem)[0])


def wrong_preference(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """The pair the wrong way round, a pair of two right solutions, or of the same one."""
    draw = rng.random()
    if draw < 0.5:
        return _changed(row, chosen=row.rejected, rejected=row.chosen)
    return _changed(row, rejected=row.chosen if draw < 0.75 else f"Let us see.\n{row.chosen}")


def contaminated(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow | None:
    """A held-out problem among the training rows, word for word or lightly edited."""
    if not stock.held_out:
        return None
    leaked = stock.make(row.source, stock.task, rng.choice(stock.held_out), rng)
    return leaked if rng.random() < 0.5 else near_duplicate(rng, leaked, problem, stock)


def malformed_prompt(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """No text, text without end, or no answer."""
    broken = (
        _changed(row, prompt=""),
        _changed(row, prompt="  \n"),
        _changed(row, prompt=_endless(row.prompt)),
        _changed(row, answer=None),
    )
    return rng.choice(broken)


def malformed_demonstration(
    rng: random.Random, row: RawRow, problem: Problem, stock: Stock
) -> RawRow:
    """An empty prompt or response, no answer mark, or a response without end."""
    broken = (
        _changed(row, prompt=""),
        _changed(row, response=""),
        _changed(row, response=problem.solution.rpartition(MARK)[0].rstrip()),
        _changed(row, response=_endless(problem.solution)),
    )
    return rng.choice(broken)


def malformed_preference(rng: random.Random, row: RawRow, problem: Problem, stock: Stock) -> RawRow:
    """Half a pair, an empty prompt, or a response without end."""
    broken = (
        _changed(row, prompt=""),
        _changed(row, rejected=None),
        _changed(row, chosen=None),
        _changed(row, rejected=_endless(row.rejected or "")),
    )
    return rng.choice(broken)


def _endless(text: str) -> str:
    return f"{text}\n" * (_LONG // (len(text) + 1) + 1)


def _all_kinds(maker: Maker) -> dict[str, Maker]:
    return dict.fromkeys(("evaluation", "demonstrations", "preferences", "prompts"), maker)


DIRT: Mapping[str, Mapping[str, Maker]] = {
    "exact_duplicate": _all_kinds(exact_duplicate),
    "near_duplicate": _all_kinds(near_duplicate),
    "wrong_answer": {"demonstrations": wrong_demonstration, "preferences": wrong_preference},
    "contaminated": dict.fromkeys(("demonstrations", "preferences", "prompts"), contaminated),
    "malformed": {
        "evaluation": malformed_prompt,
        "prompts": malformed_prompt,
        "demonstrations": malformed_demonstration,
        "preferences": malformed_preference,
    },
}
