"""What sources share: the row that could not be told, and JSON files read with care."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.artifacts import read_lines
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


def json_lines(path: Path) -> Iterator[Line]:
    """Yield the JSON objects of a file of JSON lines; blank lines are passed over.

    Raises DataError for an absent or empty file, an endless line, invalid UTF-8, and
    malformed JSON: of these the first ten, each with its line.
    """
    faults: list[Fault] = []
    count = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        count += 1
        found = _parse(line, f"{path}:{number}")
        if isinstance(found, Line):
            if not faults:
                yield found
        elif len(faults) < MOST_FAULTS:
            faults.append(found)
    if not count:
        mend = "give a file with one JSON object a line"
        faults.append(Fault("empty file", str(path), "it holds no rows", mend))
    if faults:
        raise DataError(*faults)


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
