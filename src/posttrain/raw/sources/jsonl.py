"""Rows from JSON-lines files that people wrote."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from posttrain.errors import ConfigError, DataError, Fault
from posttrain.raw.sources.source import MOST_FAULTS, Line, Skipped, json_lines
from posttrain.records import RawRow


def jsonl(seed: int, /, *, paths: list[str]) -> Iterator[RawRow | Skipped]:
    """Yield the rows of files whose lines are `RawRow` objects.

    `prompt` and `task` are required; `id` is computed and `source` is `jsonl/<file name>`
    where they are left out. Raises DataError with file and line for rows that do not fit.
    """
    if not paths:
        where = "raw.sources.jsonl.paths"
        raise ConfigError(Fault("no files", where, "the list is empty", "name at least one file"))
    for path in map(Path, paths):
        faults: list[Fault] = []
        for line in json_lines(path):
            row = _row(line, f"jsonl/{path.stem}")
            if isinstance(row, RawRow):
                yield row
            else:
                faults.append(row)
            if len(faults) == MOST_FAULTS:
                break
        if faults:
            raise DataError(*faults)


def jsonl_reads(*, paths: list[str]) -> list[Path]:
    """The files that the source reads."""
    return [Path(path) for path in paths]


def _row(line: Line, source: str) -> RawRow | Fault:
    try:
        row = RawRow.model_validate({"id": "", "source": source, **line.values})
    except ValidationError as error:
        finding = error.errors()[0]
        column = ".".join(map(str, finding["loc"]))
        mend = f"the columns of a row are {', '.join(RawRow.model_fields)}"
        what = f"missing column `{column}`" if finding["type"] == "missing" else f"bad `{column}`"
        return Fault(what, line.where, finding["msg"], mend)
    return row if row.id else RawRow.of(**row.model_dump(exclude={"id"}))
