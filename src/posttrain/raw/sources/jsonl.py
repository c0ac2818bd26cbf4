"""Rows from JSON-lines files that people wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from posttrain.artifacts import file_digest
from posttrain.errors import ConfigError, DataError, Fault, accepted
from posttrain.raw.sources.source import MOST_FAULTS, Line, Skipped, lines_or_faults
from posttrain.records import RawRow


def jsonl(
    seed: int,
    /,
    *,
    paths: list[str],
    bad_rows: Literal["refuse", "skip"] = "refuse",
    sha256: dict[str, str] | None = None,
) -> Iterator[RawRow | Skipped]:
    """Yield the rows of files whose lines are `RawRow` objects.

    `prompt` and `task` are required; `id` is computed and `source` is `jsonl/<file name>`
    where they are left out. For rows that do not fit, `refuse` raises DataError with file and
    line, `skip` counts them with their reason. `sha256` are the recorded digests of files, by
    path: one that has changed is a DataError.
    """
    if not paths:
        where = "raw.sources.jsonl.paths"
        raise ConfigError(Fault("no files", where, "the list is empty", "name at least one file"))
    _check_digests(paths, sha256 or {})
    for path in map(Path, paths):
        source = f"jsonl/{path.stem}"
        faults: list[Fault] = []
        for line in lines_or_faults(path):
            row = _row(line, source) if isinstance(line, Line) else line
            if isinstance(row, Fault) and bad_rows == "skip":
                yield Skipped(source, row.what)
            elif isinstance(row, Fault):
                faults.append(row)
            elif not faults:
                yield row
            if len(faults) == MOST_FAULTS:
                break
        if faults:
            raise DataError(*faults)


def jsonl_reads(
    *,
    paths: list[str],
    bad_rows: str = "refuse",
    sha256: dict[str, str] | None = None,
) -> list[Path]:
    """The files that the source reads."""
    return [Path(path) for path in paths]


def _check_digests(paths: list[str], recorded: dict[str, str]) -> None:
    """Refuse recorded digests of other files, and files that are not what was recorded."""
    where = "raw.sources.jsonl.sha256"
    unknown = [
        Fault(
            "digest of a file that is not read",
            f"{where}.{path}",
            "no such path",
            accepted(path, paths),
        )
        for path in recorded
        if path not in paths
    ]
    if unknown:
        raise ConfigError(*unknown)
    found = {path: file_digest(Path(path)) for path in recorded if Path(path).is_file()}
    changed = [
        Fault(
            "a source has changed",
            path,
            f"its sha256 is {digest}, and {recorded[path]} was recorded",
            f"fetch the recorded file again, or record the new digest in {where}",
        )
        for path, digest in found.items()
        if digest != recorded[path]
    ]
    if changed:
        raise DataError(*changed)


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
