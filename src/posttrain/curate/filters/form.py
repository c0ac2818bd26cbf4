"""Filters of form: what a row must have, and what its responses must be."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PositiveInt

from posttrain.curate.batch import TEXTS, Batch, Mask
from posttrain.curate.ledger import KINDS
from posttrain.curate.operators import Reasons, reasons
from posttrain.rewards.verifiers import verifier_of
from posttrain.tasks import MARK

MARKED = ("arithmetic", "knights_knaves", "countdown", "gsm8k", "number")


def true(condition: pa.Array) -> Mask:
    """A condition on a column as a mask; unknown is false."""
    return np.asarray(pc.fill_null(condition, False), dtype=bool)


def blank(batch: Batch, name: str) -> Mask:
    """Which rows have no more than white space in a column that is there."""
    return true(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(batch.column(name))), 0))


@dataclass
class Schema:
    """Drop rows that lack what their kind needs.

    `marked_tasks` are those whose right responses have a `#### answer`. A verifiable row of a
    task without a verifier raises DataError: that is a mistake in a source, not in a row.
    """

    _: KW_ONLY
    marked_tasks: tuple[str, ...] = MARKED

    def __call__(self, batch: Batch, /) -> Reasons:
        there = {name: batch.present(name) for name in ("answer", *TEXTS)}
        for task in pc.unique(batch.column("task").filter(pa.array(there["answer"]))).to_pylist():
            verifier_of(task)
        kinds = batch.kinds()
        pairs, asked = kinds == KINDS.index("preferences"), np.isin(kinds, (0, 3))
        good = pc.if_else(pa.array(pairs), batch.column("chosen"), batch.column("response"))
        marked = true(pc.is_in(batch.column("task"), pa.array(self.marked_tasks)))
        unmarked = marked & ~true(pc.match_substring(good, MARK))
        empty = blank(batch, "response") | blank(batch, "chosen") | blank(batch, "rejected")
        return reasons(
            batch,
            ("empty prompt", blank(batch, "prompt")),
            ("no answer", asked & (~there["answer"] | blank(batch, "answer"))),
            ("half a pair", pairs & ~(there["chosen"] & there["rejected"])),
            ("empty response", ~asked & empty),
            (f"no `{MARK}` in the response", ~asked & unmarked),
        )


@dataclass
class Length:
    """Drop rows with a text of more than `prompt` or `response` characters."""

    _: KW_ONLY
    prompt: PositiveInt = 4096
    response: PositiveInt = 4096

    def __call__(self, batch: Batch, /) -> Reasons:
        long = [
            true(pc.greater(pc.utf8_length(batch.column(name)), limit))
            for name, limit in zip(TEXTS, (self.prompt, *[self.response] * 3), strict=True)
        ]
        return reasons(
            batch,
            ("prompt too long", long[0]),
            ("response too long", long[1] | long[2] | long[3]),
        )


@dataclass
class IdenticalPair:
    """Drop pairs of the same response; case and punctuation may be what a pair is about."""

    def __call__(self, batch: Batch, /) -> Reasons:
        pairs = zip(batch.values("chosen"), batch.values("rejected"), strict=True)
        same = [
            one is not None and two is not None and (one == two or one.split() == two.split())
            for one, two in pairs
        ]
        return reasons(batch, ("identical pair", same))


@dataclass
class WrongAnswer:
    """Drop demonstrations and chosen responses that verify as wrong, and rejected ones as right.

    A row without an answer cannot be verified and stays.
    """

    def __call__(self, batch: Batch, /) -> Reasons:
        return reasons(
            batch,
            ("wrong answer", [each is False for each in batch.verified("response")]),
            ("the chosen response is wrong", [e is False for e in batch.verified("chosen")]),
            ("the rejected response is right", [e is True for e in batch.verified("rejected")]),
        )
