"""Filters: a raw row in, None to keep it or the reason to drop it.

A filter is made once for a run and called with every row that the filters before it kept, the
evaluation rows first. One that remembers rows remembers only those it keeps; put it behind the
ones that need no memory, so that a bad row is never the reason to drop a good one. To add a
filter, write a class with keyword-only options and add a line to FILTERS.
"""

import hashlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from pydantic import NonNegativeInt, PositiveInt

from posttrain.curate.likeness import NearIndex, runs, tokens
from posttrain.records import RawRow
from posttrain.rewards.verifiers import verifier_of, verify
from posttrain.tasks import MARK

Filter = Callable[[RawRow], str | None]

MARKED = ("arithmetic", "knights_knaves", "countdown", "gsm8k", "number")


def texts_of(row: RawRow) -> list[str]:
    """The texts that make the row what it is: the prompt, and the responses if any."""
    texts = (row.prompt, row.response, row.chosen, row.rejected)
    return [text for text in texts if text is not None]


@dataclass
class Schema:
    """Drop rows that lack what their kind needs.

    `marked_tasks` are those whose right responses have a `#### answer`. A verifiable row of a
    task without a verifier raises DataError: that is a mistake in a source, not in a row.
    """

    _: KW_ONLY
    marked_tasks: tuple[str, ...] = MARKED

    def __call__(self, row: RawRow) -> str | None:
        if row.answer is not None:
            verifier_of(row.task)
        if not row.prompt.strip():
            return "empty prompt"
        if row.kind in ("prompts", "evaluation"):
            return None if row.answer and row.answer.strip() else "no answer"
        if row.kind == "preferences" and (row.chosen is None or row.rejected is None):
            return "half a pair"
        good = row.response if row.kind == "demonstrations" else row.chosen
        if not (good or "").strip() or not (row.rejected is None or row.rejected.strip()):
            return "empty response"
        if row.task in self.marked_tasks and MARK not in (good or ""):
            return f"no `{MARK}` in the response"
        return None


@dataclass
class Length:
    """Drop rows with a text of more than `prompt` or `response` characters."""

    _: KW_ONLY
    prompt: PositiveInt = 4096
    response: PositiveInt = 4096

    def __call__(self, row: RawRow) -> str | None:
        if len(row.prompt) > self.prompt:
            return "prompt too long"
        if any(len(text) > self.response for text in texts_of(row)[1:]):
            return "response too long"
        return None


@dataclass
class IdenticalPair:
    """Drop pairs of the same response; case and punctuation may be what a pair is about."""

    def __call__(self, row: RawRow) -> str | None:
        if row.chosen is None or row.rejected is None:
            return None
        return "identical pair" if row.chosen.split() == row.rejected.split() else None


@dataclass
class WrongAnswer:
    """Drop demonstrations and chosen responses that verify as wrong, and rejected ones as right.

    A row without an answer cannot be verified and stays.
    """

    def __call__(self, row: RawRow) -> str | None:
        if row.answer is None:
            return None
        if row.response is not None and not _right(row, row.response):
            return "wrong answer"
        if row.chosen is not None and not _right(row, row.chosen):
            return "the chosen response is wrong"
        if row.rejected is not None and _right(row, row.rejected):
            return "the rejected response is right"
        return None


def _right(row: RawRow, response: str) -> bool:
    return verify(row.task, row.prompt, row.answer or "", response)


@dataclass
class Contamination:
    """Drop training rows whose prompt stands among the evaluation prompts.

    It counts as the same word for word in its normal form, when it is `threshold` like one
    (Jaccard of shingles), or when they share a run of `run` words (0: not looked at). In
    `exact_tasks` one word makes another problem, so that only the first counts.
    """

    _: KW_ONLY
    threshold: float = 0.6
    run: NonNegativeInt = 13
    exact_tasks: tuple[str, ...] = ("knights_knaves",)

    def __post_init__(self) -> None:
        self._exact: set[bytes] = set()
        self._near = NearIndex(self.threshold)
        self._runs: set[int] = set()

    def __call__(self, row: RawRow) -> str | None:
        exact = row.task in self.exact_tasks
        key = _digest(row.prompt)
        if row.kind == "evaluation":
            self._exact.add(key)
            if not exact:
                self._near.add(row.prompt)
                self._runs.update(map(hash, self._runs_of(row.prompt)))
            return None
        if key in self._exact:
            return "an evaluation prompt"
        if exact:
            return None
        if self._near.holds(row.prompt):
            return "like an evaluation prompt"
        if any(hash(words) in self._runs for words in self._runs_of(row.prompt)):
            return f"shares {self.run} words in a row with an evaluation prompt"
        return None

    def _runs_of(self, text: str) -> list[str]:
        return list(runs(text, self.run)) if self.run else []


@dataclass
class ExactDuplicate:
    """Drop rows whose normal form (likeness.tokens) an earlier row of the same kind has."""

    def __post_init__(self) -> None:
        self._seen: set[bytes] = set()

    def __call__(self, row: RawRow) -> str | None:
        key = _digest(row.kind, *texts_of(row))
        if key in self._seen:
            return "exact duplicate"
        self._seen.add(key)
        return None


@dataclass
class NearDuplicate:
    """Drop rows whose every text is `threshold` like that of an earlier row.

    Rows are compared within their kind, by MinHash-LSH.
    In `exact_tasks` one word makes another problem, so that no row is a near duplicate.
    """

    _: KW_ONLY
    threshold: float = 0.6
    exact_tasks: tuple[str, ...] = ("knights_knaves",)
    _seen: dict[str, NearIndex] = field(default_factory=dict, init=False)

    def __call__(self, row: RawRow) -> str | None:
        if row.task in self.exact_tasks:
            return None
        index = self._seen.setdefault(row.kind, NearIndex(self.threshold))
        return None if index.add(*texts_of(row)) else "near duplicate"


def _digest(*texts: str) -> bytes:
    """A digest of the normal forms of texts."""
    normal = "\x1f".join(" ".join(tokens(text)) for text in texts)
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()


FILTERS: dict[str, Callable[..., Filter]] = {
    "schema": Schema,
    "length": Length,
    "identical_pair": IdenticalPair,
    "wrong_answer": WrongAnswer,
    "contamination": Contamination,
    "exact_duplicate": ExactDuplicate,
    "near_duplicate": NearDuplicate,
}
