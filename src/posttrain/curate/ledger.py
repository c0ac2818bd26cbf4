"""The books of curation: every row that came in was kept or dropped, and why."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import BaseModel

if TYPE_CHECKING:
    from posttrain.curate.mapping import Finished

KINDS = ("evaluation", "demonstrations", "preferences", "prompts")
"""In the order of the outputs; a row's kind is `RawRow.kind`."""

KEPT = 127
"""In place of the number of the filter that dropped a row."""

SAMPLES_PER_REASON = 5


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


class DroppedRow(NamedTuple):
    """A dropped row; `number` is its place in the shard, `filter` in the chain."""

    number: int
    id: str
    source: str
    filter: int
    reason: str


class LengthBias(BaseModel):
    """Whether the better response of the kept pairs is also the longer one.

    `chosen_longer` is the share of pairs, a tie counts one half: 0.5 is no bias. `characters` is
    the mean of chosen less rejected.
    """

    pairs: int
    chosen_longer: float
    characters: float


class SuiteCheck(BaseModel):
    """That training rows were checked against a suite; `version` is the digest of its items."""

    items: int
    version: str
    dropped: int


class Ledger:
    """Counts of the kept and the dropped over finished shards."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.filters: dict[str, Counter[str]] = {name: Counter() for name in filters}
        self.reasons: Counter[str] = Counter()
        self.difficulty: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.shards: list[dict[str, Flow]] = []
        self.samples: list[DropSample] = []
        self._names = list(filters)
        self._kept: Counter[tuple[str, str]] = Counter()
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._gaps = np.zeros(3)

    def add(self, shard: "Finished") -> None:
        """Count the rows of a shard."""
        columns = [shard.column(name).to_pylist() for name in ("kind", "source", "difficulty")]
        stands = shard.dropped == KEPT
        counts = Counter(zip(*columns, stands.tolist(), strict=True))
        for (place, source, band, kept), count in counts.items():
            kind = KINDS[place]
            (self._kept if kept else self._dropped)[kind, source] += count
            if kept:
                self.difficulty[kind]["unknown" if band is None else str(band)] += count
        self.shards.append(dict(self._steps(shard)))
        gap = shard.column("chosen_size").to_numpy() - shard.column("rejected_size").to_numpy()
        gap = gap[stands & (shard.column("kind").to_numpy() == KINDS.index("preferences"))]
        self._gaps += (len(gap), (gap > 0).sum() + 0.5 * (gap == 0).sum(), gap.sum())

    def list_dropped(
        self, shards: Sequence["Finished"], path: Path, text: Callable[["Finished", int], str]
    ) -> None:
        """Write a line for each dropped row, kind after kind; the first few of each reason become
        samples, for which `text` gives what is shown of a row."""
        with path.open("w", encoding="utf-8") as file:
            for kind in KINDS:
                for shard in shards:
                    for row in shard.dropped_rows(kind):
                        name = self._names[row.filter]
                        self.filters[name][kind] += 1
                        self.reasons[f"{name}: {row.reason}"] += 1
                        drop = {"filter": name, "reason": row.reason}
                        line = {"id": row.id, "kind": kind, "source": row.source, **drop}
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
                        if self.reasons[f"{name}: {row.reason}"] <= SAMPLES_PER_REASON:
                            shown = text(shard, row.number)
                            sample = DropSample(**drop, kind=kind, id=row.id, text=shown)
                            self.samples.append(sample)

    def _steps(self, shard: "Finished") -> Iterator[tuple[str, Flow]]:
        """The flow through each filter; each has in what the one before it kept."""
        left = shard.ledger["rows_in"]
        for step, name in enumerate(self._names):
            dropped = int((shard.dropped == step).sum())
            yield name, Flow(rows_in=left, kept=left - dropped, dropped=dropped)
            left -= dropped
        if left != int((shard.dropped == KEPT).sum()):
            raise RuntimeError(f"{shard.home.name}: {left} rows are neither kept nor dropped")

    def length_bias(self) -> LengthBias | None:
        """The length bias of the kept pairs, where there are any."""
        pairs, longer, characters = self._gaps.tolist()
        if not pairs:
            return None
        return LengthBias(
            pairs=int(pairs), chosen_longer=longer / pairs, characters=characters / pairs
        )

    def dropped_as(self, what: str) -> int:
        """How many rows went for a reason that ends so."""
        return sum(count for reason, count in self.reasons.items() if reason.endswith(what))

    def total(self) -> Flow:
        """The flow of all rows."""
        return self._flow(self._kept.keys() | self._dropped.keys())

    def by_kind(self) -> dict[str, Flow]:
        """The flow of each kind, also of those that no row came in for."""
        keys = self._kept.keys() | self._dropped.keys()
        return {kind: self._flow(key for key in keys if key[0] == kind) for kind in KINDS}

    def by_source(self) -> dict[str, Flow]:
        """The flow of each source."""
        keys = self._kept.keys() | self._dropped.keys()
        sources = sorted({source for _, source in keys})
        return {name: self._flow(key for key in keys if key[1] == name) for name in sources}

    def _flow(self, keys: Iterable[tuple[str, str]]) -> Flow:
        counts = [(self._kept[key], self._dropped[key]) for key in keys]
        kept, dropped = sum(k for k, _ in counts), sum(d for _, d in counts)
        return Flow(rows_in=kept + dropped, kept=kept, dropped=dropped)
