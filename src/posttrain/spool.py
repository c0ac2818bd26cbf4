"""A curves file as a spool: the points behind a place in it, in portions that are sent at once."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.journal import Point


class Portion(NamedTuple):
    """Points of whole lines, and the byte at which these lines end."""

    points: list[Point]
    end: int


def began(curves: Path) -> float | None:
    """The time of the first line, by which a file is known from its successor of that name."""
    if not curves.is_file():
        return None
    with curves.open("rb") as file:
        return next((point.time for point in _points(file.readline())), None)


def unsent(curves: Path, start: int, last: Mapping[str, int], size: int) -> Iterator[Portion]:
    """Yield what follows byte `start`, about `size` points at a time.

    A line without its end is still being written, and is left for the next time. `last` is the
    last step of each metric before `start`: a resumed stage logs some steps again, and of those
    only the values that differ are sent.
    """
    if not curves.is_file():
        return
    newest = dict(last)
    known: dict[tuple[str, int], float] | None = None
    points: list[Point] = []
    with curves.open("rb") as file:
        file.seek(start)
        end = start
        for line in file:
            if not line.endswith(b"\n"):
                break
            for point in _points(line):
                if known is None and point.step <= newest.get(point.name, point.step - 1):
                    known = _values(curves, end)
                newest[point.name] = max(newest.get(point.name, point.step), point.step)
                if known is not None:
                    before = known.get((point.name, point.step))
                    if before is not None and _same(before, point.value):
                        continue
                    known[point.name, point.step] = point.value
                points.append(point)
            end += len(line)
            if len(points) >= size:
                yield Portion(points, end)
                points = []
    yield Portion(points, end)


def _values(curves: Path, end: int) -> dict[tuple[str, int], float]:
    """The value of each metric and step before a byte; of a step logged twice, the later."""
    with curves.open("rb") as file:
        lines = file.read(end).splitlines()
    return {(p.name, p.step): p.value for line in lines for p in _points(line)}


def _points(line: bytes) -> Iterator[Point]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return  # two lines ran into each other when their writer was killed
    for name, value in entry["metrics"].items():
        yield Point(entry["step"], entry["time"], name, value)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
