"""The card of a dataset folder: what a reader must know of its rows, counted from the rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posttrain.artifacts import Manifest, read_manifest, read_rows
from posttrain.records import Record
from posttrain.select.licences import licence_of
from posttrain.select.measures import FILE, Measured
from posttrain.select.rows import difficulty_of, id_of, task_of
from posttrain.select.stage import record_of

TEXTS = ("text", "prompt", "answer", "response", "chosen", "rejected")
BARS = 10


class Spread(NamedTuple):
    """How a number is distributed over the rows: its mean, quantiles and a histogram of BARS."""

    n: int
    mean: float
    low: float
    tenth: float
    median: float
    ninetieth: float
    high: float
    bars: tuple[int, ...]


@dataclass
class Card:
    """Counts over the rows of one folder. `spreads`: characters of each text, and each measure.

    `examples` are the texts of some rows by name; none of a source that may offend.
    """

    name: str
    manifest: Manifest
    rows: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    difficulty: Counter[str] = field(default_factory=Counter)
    spreads: dict[str, Spread] = field(default_factory=dict)
    measured: dict[str, Spread] = field(default_factory=dict)
    examples: list[dict[str, str]] = field(default_factory=list)

    @property
    def offensive(self) -> list[str]:
        """The sources among the rows whose text may offend."""
        return [source for source in self.sources if licence_of(source).offensive]

    @property
    def unknown(self) -> list[str]:
        """The sources whose licence is not known."""
        return [source for source in self.sources if licence_of(source).home == "unknown"]


def card_of(folder: Path, examples: int = 3) -> Card:
    """Count a dataset folder; `examples` rows are shown, evenly spaced among the presentable."""
    card = Card(folder.name, read_manifest(folder))
    shown: list[dict[str, str]] = []
    lengths: dict[str, list[int]] = {}
    ids: set[str] = set()
    for row in read_rows(folder, record_of(folder)):
        source = str(getattr(row, "source", "unknown")).partition("+")[0]
        card.rows += 1
        ids.add(id_of(row))
        card.sources[source] += 1
        card.tasks[task_of(row)] += 1
        card.difficulty[str(difficulty_of(row) or "unknown")] += 1
        texts = dict(texts_of(row))
        for name, text in texts.items():
            lengths.setdefault(name, []).append(len(text))
        if not licence_of(source).offensive:
            shown.append(texts)
    card.spreads = {name: spread_of(found) for name, found in lengths.items()}
    card.measured = {name: spread_of(found) for name, found in measures_of(folder, ids).items()}
    places = {round(at) for at in np.linspace(0, len(shown) - 1, examples)} if shown else set()
    card.examples = [shown[at] for at in sorted(places)]
    return card


def texts_of(row: Record) -> Iterator[tuple[str, str]]:
    """The texts of a row, of any record, by field."""
    for name in TEXTS:
        text = getattr(row, name, None)
        if isinstance(text, str):
            yield name, text


def measures_of(folder: Path, ids: set[str]) -> dict[str, list[float]]:
    """What was measured of the rows that were chosen."""
    found: dict[str, list[float]] = {}
    if (folder / FILE).is_file():
        for row in read_rows(folder, Measured, FILE):
            for name, value in row.measures.items() if row.id in ids else ():
                found.setdefault(name, []).append(value)
    return found


def spread_of(values: Sequence[float]) -> Spread:
    """The distribution of some numbers, of which there is at least one."""
    found = np.asarray(values, dtype=np.float64)
    low, tenth, median, ninetieth, high = map(float, np.quantile(found, (0, 0.1, 0.5, 0.9, 1)))
    counts, _ = np.histogram(found, bins=BARS)
    bars = tuple(int(n) for n in counts)
    mean = float(found.mean())
    return Spread(len(found), mean, low, tenth, median, ninetieth, high, bars)
