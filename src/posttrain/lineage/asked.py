"""Which row is asked for: by its id, the beginning of it, or text of its prompt."""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice

from posttrain.errors import DataError, Fault
from posttrain.lineage.folders import Artifact, own_id, rows_with
from posttrain.lineage.shown import plain
from posttrain.records import Record

MOST = 8
"""So many rows are named where one is wanted."""

NEAR = 4
"""An id is near when it shares so many characters at its beginning or end (assumed)."""

COMPARED = 5000
"""So many rows of an artifact are compared with an id that nothing has (assumed)."""


def find(artifacts: Sequence[Artifact], asked: str) -> Record:
    """The row that is asked for; DataError with the near ones unless it is one row."""
    for artifact in artifacts:
        for _, row in rows_with(artifact, [asked]):
            if own_id(row) == asked:
                return row
    begun: dict[str, Record] = {}
    spoken: dict[str, Record] = {}
    for artifact in artifacts:
        # The first artifact with the text has it before anything was made of it.
        first = not spoken
        for _, row in rows_with(artifact, [asked], part=True):
            if own_id(row).startswith(asked):
                begun.setdefault(own_id(row), row)
            elif first and (asked in prompt_of(row) or asked == prompt_id_of(row)):
                spoken.setdefault(own_id(row), row)
            if max(len(begun), len(spoken)) > MOST:
                break
    found = begun or spoken
    if len(found) == 1:
        return next(iter(found.values()))
    raise several(asked, [*found]) if found else unknown(artifacts, asked)


def prompt_of(row: Record) -> str:
    """The prompt of a row."""
    return str(getattr(row, "text", None) or getattr(row, "prompt", ""))


def prompt_id_of(row: Record) -> str | None:
    """The id of the prompt that a row answers, where it has one of its own."""
    return getattr(row, "prompt_id", None)


def several(asked: str, found: Sequence[str]) -> DataError:
    """More rows than one."""
    shown = ", ".join(map(plain, found[:MOST])) + (" and more" if len(found) > MOST else "")
    return DataError(
        Fault("more rows than one", f"`{plain(asked)}`", f"it may be {shown}", "give one whole id")
    )


def unknown(artifacts: Sequence[Artifact], asked: str) -> DataError:
    """No row at all."""
    texts = [] if " " in asked else [asked[:NEAR], asked[-NEAR:]]
    ids = {
        own_id(row)
        for artifact in artifacts
        for _, row in islice(rows_with(artifact, texts, part=True), COMPARED)
    }
    near = get_close_matches(asked, sorted(ids), n=MOST, cutoff=0.5)
    told = ", ".join(map(plain, near))
    mend = f"did you mean {told}?" if near else "give an id, or text of its prompt"
    names = ", ".join(sorted({a.name for a in artifacts if a.record})) or "nothing with rows"
    return DataError(Fault("no such row", f"`{plain(asked)}`", f"searched: {names}", mend))
