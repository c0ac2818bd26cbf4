"""What selectors read of a row, whatever its record."""

from collections.abc import Iterable
from typing import TypeVar

from posttrain.errors import DataError, Fault
from posttrain.records import Record

Row = TypeVar("Row", bound=Record)


def text_of(row: Record) -> str:
    """The prompt of a row of any record."""
    return str(getattr(row, "text", None) or getattr(row, "prompt", ""))


def response_of(row: Record) -> str:
    """The response worth imitating: a demonstration's, a pair's chosen one; else empty."""
    return str(getattr(row, "response", None) or getattr(row, "chosen", None) or "")


def id_of(row: Record) -> str:
    """The id of a row, of any record that has one."""
    return str(getattr(row, "id", ""))


def task_of(row: Record) -> str:
    """The task of a row; of a record without one, its source without the mark of known dirt."""
    return str(getattr(row, "task", None) or getattr(row, "source", "").partition("+")[0])


def difficulty_of(row: Record) -> int:
    """The band of a row; 0 where it is not known."""
    return getattr(row, "difficulty", None) or 0


def all_of(rows: Iterable[Record], record: type[Row]) -> list[Row]:
    """The rows as a list; DataError where one is not of the record that a selector works on."""
    found: list[Row] = []
    for row in rows:
        if not isinstance(row, record):
            what, why = f"rows of {type(row).__name__}", f"the selector works on {record.__name__}"
            mend = f"give a dataset of {record.__name__}, or choose another selector"
            raise DataError(Fault(what, "select: --curated", why, mend))
        found.append(row)
    return found
