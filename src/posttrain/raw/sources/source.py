"""What sources share: the row that could not be told, and files of rows read with care."""

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.artifacts import MAX_ROW_BYTES
from posttrain.errors import DataError, Fault

MOST_FAULTS = 10


class Skipped(NamedTuple):
    """An upstream row that no row was made of; `reason` is counted in the report."""

    source: str
    reason: str


class Line(NamedTuple):
    """A JSON object and where it stands, for messages."""

    where: str
    values: dict[str, Any]


def file_lines(path: Path) -> Iterator[Line]:
    """Rows of a file by the end of its name: a table with a header (.csv), one JSON array (.json),
    else JSON lines. DataError where it is none."""
    read = {".csv": csv_rows, ".json": json_array}.get(path.suffix, json_lines)
    return read(path)


def csv_rows(path: Path) -> Iterator[Line]:
    """Yield the rows of a table with a header, by column."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            rows = [Line(f"{path}:{table.line_num}", dict(row)) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        why = str(error)
        raise DataError(Fault("unreadable table", str(path), why, "save it as UTF-8 CSV")) from None
    if not rows:
        mend = "give a file with a header and a row for each item"
        raise DataError(Fault("empty file", str(path), "it holds no rows", mend))
    yield from rows


def json_array(path: Path) -> Iterator[Line]:
    """Yield the objects of a file that holds one JSON array."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(
            Fault("not a JSON file", str(path), str(error), "fetch the file again")
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        why = "the file must hold an array of objects"
        raise DataError(Fault("not a JSON array", str(path), why, "fetch the file again"))
    for index, row in enumerate(rows):
        yield Line(f"{path}[{index}]", row)


def json_lines(path: Path) -> Iterator[Line]:
    """Yield the JSON objects of a file of JSON lines; blank lines are passed over.

    Raises DataError for an absent or empty file, an endless line, invalid UTF-8, and
    malformed JSON: of these the first ten, each with its line.
    """
    faults: list[Fault] = []
    for found in lines_or_faults(path):
        if isinstance(found, Fault):
            faults.append(found)
        elif not faults:
            yield found
        if len(faults) == MOST_FAULTS:
            break
    if faults:
        raise DataError(*faults)


def lines_or_faults(path: Path) -> Iterator[Line | Fault]:
    """Yield for each line its JSON object or what is wrong with it; a fault for an empty file.

    A line of more than MAX_ROW_BYTES is passed over without being held. Raises DataError for an
    absent file.
    """
    if not path.is_file():
        raise DataError(Fault("no rows", str(path), "the file is not there", "check the path"))
    empty = True
    with path.open("rb") as file:
        for number in itertools.count(1):
            line = file.readline(MAX_ROW_BYTES + 1)
            if not line:
                break
            where = f"{path}:{number}"
            if len(line) > MAX_ROW_BYTES:
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_ROW_BYTES)
                why = f"the line has more than {MAX_ROW_BYTES} bytes"
                mend = "split the row, or check that the file is JSON lines"
                yield Fault("row too long", where, why, mend)
            elif line.strip():
                yield _parse(line, where)
            else:
                continue
            empty = False
    if empty:
        mend = "give a file with one JSON object a line"
        yield Fault("empty file", str(path), "it holds no rows", mend)


def _parse(line: bytes, where: str) -> Line | Fault:
    try:
        values = json.loads(line.decode("utf-8"))
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        why = f"byte {error.start} of the line is {line[error.start]:#04x}"
        return Fault("invalid UTF-8", where, why, "save the file as UTF-8")
    except UnicodeEncodeError:
        why = "an escape such as `\\ud800` stands for half a character"
        return Fault("invalid UTF-8", where, why, "save the file as UTF-8")
    except (json.JSONDecodeError, RecursionError) as error:
        return Fault("malformed JSON", where, str(error), "write one JSON object a line")
    if not isinstance(values, dict):
        why = f"the line holds {type(values).__name__}"
        return Fault("not a JSON object", where, why, "write one JSON object a line")
    return Line(where, values)


def field(line: Line, name: str) -> Any:
    """A field of an upstream row; a `DataError` that names the line when it is missing."""
    if name not in line.values:
        raise DataError(
            Fault(
                f"missing column `{name}`",
                line.where,
                f"the row has {', '.join(sorted(map(str, line.values))) or 'no columns'}",
                "check that the file is the one that the source expects",
            )
        )
    return line.values[name]


def text(line: Line, name: str) -> str:
    """A field that must hold text."""
    value = field(line, name)
    if not isinstance(value, str):
        why = f"it holds {value!r}"
        raise DataError(Fault(f"column `{name}` is not text", line.where, why, "mend the row"))
    return value


def require(paths: list[Path], source: str) -> None:
    """Raise a `DataError` that names every file that is missing."""
    faults = [
        Fault(
            "no such data file",
            str(path),
            f"source `{source}` reads it in the folder that its option `folder` names",
            "set POSTTRAIN_DATA to the folder of the public data files, or mend `folder`",
        )
        for path in paths
        if not path.is_file()
    ]
    if faults:
        raise DataError(*faults)
