"""Rows as a terminal may show them."""

from collections.abc import Iterator

from posttrain.records import Record
from posttrain.select.card import texts_of
from posttrain.select.licences import licence_of

CHARACTERS = 400
"""So much of a text is shown; `--json` has all of it."""


def offends(row: Record) -> bool:
    """Whether the text of a row may offend: by the licence of its source, or by its own mark."""
    return licence_of(source_of(row)).offensive or bool(getattr(row, "sensitive", None))


def source_of(row: Record) -> str:
    """The source of a row; of a sample its suite."""
    return str(getattr(row, "source", None) or getattr(row, "suite", "unknown"))


def texts(row: Record, *, offensive: bool) -> dict[str, str]:
    """The texts of a row by field; none where they may offend and nobody asked for such."""
    return {} if offends(row) and not offensive else dict(texts_of(row))


def lines(row: Record, *, offensive: bool) -> Iterator[str]:
    """The texts of a row for a terminal, a line each."""
    found = texts(row, offensive=offensive)
    for name, text in found.items():
        yield f"{name}: {plain(text)}"
    if not found:
        yield "not shown: the source may offend (--show-offensive shows it)"


def plain(text: str, characters: int = CHARACTERS) -> str:
    """A text on one line that moves no cursor, sets no colour and turns no direction."""
    short = text[:characters] + ("…" if len(text) > characters else "")
    return "".join(each if each.isprintable() else escape(each) for each in short)


def escape(character: str) -> str:
    r"""A character as Python writes it: `\n`, `\x1b`, `\u202e`."""
    return character.encode("unicode_escape").decode("ascii")
