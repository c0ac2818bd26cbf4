"""The books of curation: every row that came in was kept or dropped, and why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from posttrain.records import RawRow

_SAMPLES_PER_REASON = 5


class Flow(BaseModel):
    """rows_in = kept + dropped."""

    rows_in: int
    kept: int
    dropped: int


class DropSample(BaseModel):
    """A dropped row as the report shows it."""

    filter: str
    reason: str
    kind: str
    id: str
    text: str


class Drop(NamedTuple):
    """Which filter dropped a row, and its reason."""

    filter: str
    reason: str


class Ledger:
    """Counts of the kept and the dropped, and the first few dropped rows of each reason."""

    def __init__(self, kinds: Sequence[str], filters: Iterable[str], characters: int) -> None:
        self.filters: dict[str, Counter[str]] = {name: Counter() for name in filters}
        self.reasons: Counter[str] = Counter()
        self.difficulty: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        self.samples: list[DropSample] = []
        self._kinds = kinds
        self._kept: Counter[tuple[str, str]] = Counter()
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._characters = characters

    def keep(self, row: RawRow) -> None:
        self._kept[row.kind, row.source] += 1
        band = "unknown" if row.difficulty is None else str(row.difficulty)
        self.difficulty[row.kind][band] += 1

    def drop(self, row: RawRow, drop: Drop) -> None:
        self._dropped[row.kind, row.source] += 1
        self.filters[drop.filter][row.kind] += 1
        reason = f"{drop.filter}: {drop.reason}"
        self.reasons[reason] += 1
        if self.reasons[reason] <= _SAMPLES_PER_REASON:
            text = " ".join(row.prompt.split())[: self._characters]
            self.samples.append(DropSample(**drop._asdict(), kind=row.kind, id=row.id, text=text))

    def total(self) -> Flow:
        """The flow of all rows."""
        return self._flow(self._kept.keys() | self._dropped.keys())

    def by_kind(self) -> dict[str, Flow]:
        """The flow of each kind, also of those that no row came in for."""
        keys = self._kept.keys() | self._dropped.keys()
        return {kind: self._flow(key for key in keys if key[0] == kind) for kind in self._kinds}

    def by_source(self) -> dict[str, Flow]:
        """The flow of each source."""
        keys = self._kept.keys() | self._dropped.keys()
        sources = sorted({source for _, source in keys})
        return {name: self._flow(key for key in keys if key[1] == name) for name in sources}

    def _flow(self, keys: Iterable[tuple[str, str]]) -> Flow:
        counts = [(self._kept[key], self._dropped[key]) for key in keys]
        kept, dropped = sum(k for k, _ in counts), sum(d for _, d in counts)
        return Flow(rows_in=kept + dropped, kept=kept, dropped=dropped)
