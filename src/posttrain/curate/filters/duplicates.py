"""Duplicates: rows that an earlier row of their kind makes needless."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from posttrain.curate.batch import TEXTS, Batch, Mask
from posttrain.curate.likeness import (
    BANDS,
    PERMUTATIONS,
    Hashes,
    Signatures,
    bands,
    mixed,
    sketched,
)
from posttrain.curate.operators import Arrays, Reasons, Sketch

_PART = 1 << 23
"""Keys that are compared at a time: the memory of the comparison, not its answer."""


def by_key(columns: Sequence[Hashes], alive: Mask) -> Iterator[tuple[Hashes, NDArray[np.intp]]]:
    """The keys of the rows alive, sorted, with their places in the order of the input; in parts
    that hold every row of a key."""
    parts = 1 + sum(map(len, columns)) // _PART
    offsets = np.cumsum([0, *map(len, columns)])
    for part in range(parts):
        chosen = [
            np.flatnonzero((keys % np.uint64(parts) == part) & alive[start : start + len(keys)])
            for keys, start in zip(columns, offsets[:-1], strict=True)
        ]
        keys = np.concatenate([k[at] for k, at in zip(columns, chosen, strict=True)])
        places = np.concatenate([at + o for at, o in zip(chosen, offsets[:-1], strict=True)])
        order = np.argsort(keys, kind="stable")
        yield keys[order], places[order]


def split(reason: str, dropped: Mask, sketches: Sequence[Sketch]) -> Iterator[Reasons]:
    """The answers for each sketch where one reason drops rows of all."""
    ends = np.cumsum([len(sketch.alive) for sketch in sketches])[:-1]
    for part in np.split(dropped, ends):
        yield [reason if each else None for each in part]


@dataclass
class ExactDuplicate:
    """Drop rows whose normal form (likeness.tokens) an earlier row of the same kind has."""

    def sketch(self, batch: Batch, /) -> Arrays:
        """Two 64-bit numbers of the row's normal form."""
        normal = np.zeros((len(batch), 2), dtype=np.uint64)
        normal[:, 0] = batch.kinds()
        for name in TEXTS:
            there = batch.present(name)
            halves = batch.normal_forms(name)[there]
            normal[there] = mixed(normal[there] * np.uint64(0x9E3779B97F4A7C15) + halves)
        return {"normal": normal}

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        alive = np.concatenate([sketch.alive for sketch in sketches])
        normal = [np.asarray(sketch["normal"]) for sketch in sketches]
        second = np.concatenate([each[:, 1] for each in normal])
        later = np.zeros(len(alive), dtype=bool)
        for keys, places in by_key([each[:, 0] for each in normal], alive):
            same = (keys[1:] == keys[:-1]) & (second[places[1:]] == second[places[:-1]])
            later[places[1:][same]] = True
        yield from split("exact duplicate", later, sketches)


@dataclass
class NearDuplicate:
    """Drop rows whose every text is `threshold` like that of an earlier row, by MinHash-LSH
    (arXiv:2107.06499).

    Rows are compared within their kind. Prompts that are like an earlier one stand under that
    one, so no chain of small changes leads from a prompt to quite another. In `exact_tasks` one
    word makes another problem, so that no row is a near duplicate.
    """

    _: KW_ONLY
    threshold: float = 0.6
    exact_tasks: tuple[str, ...] = ("knights_knaves", "bugfix", "judging")

    def sketch(self, batch: Batch, /) -> Arrays:
        """The signatures of the prompt and, one after the other, of the responses (0.5 KB each);
        [BANDS, rows] the band keys of the prompt."""
        there = np.stack([batch.present(name) for name in TEXTS[1:]], axis=1)
        counts = there.sum(axis=1)
        places = (np.cumsum(counts) - counts)[:, None] + np.cumsum(there, axis=1) - 1
        below = np.empty((counts.sum(), PERMUTATIONS), dtype=np.int32)
        for column, name in enumerate(TEXTS[1:]):
            own = there[:, column]
            below[places[own, column]] = sketched(batch.words(name).keep(own))
        prompts = batch.signatures("prompt")
        kinds = mixed(batch.kinds().astype(np.uint64) + np.uint64(1))
        exact = np.array([task in self.exact_tasks for task in batch.values("task")], dtype=bool)
        return {
            "prompts": prompts,
            "below": below,
            "counts": counts.astype(np.int8),
            "bands": bands(prompts).T ^ kinds,
            "exact": exact,
        }

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        alive = [sketch.alive & ~sketch["exact"] for sketch in sketches]
        shared = _shared(sketches, np.concatenate(alive))
        leaders = _Leaders(self.threshold)
        for sketch, mask, bits in zip(sketches, alive, shared, strict=True):
            found: list[str | None] = [None] * len(mask)
            counts, prompts, below = sketch["counts"], sketch["prompts"], sketch["below"]
            keys = sketch["bands"]
            ends = np.cumsum(counts, dtype=np.int64)
            for at in np.flatnonzero(mask & (bits != 0)):
                own = [(b, int(keys[b, at])) for b in range(BANDS) if bits[at] >> b & 1]
                responses = below[ends[at] - counts[at] : ends[at]]
                if not leaders.add(own, prompts[at], responses):
                    found[at] = "near duplicate"
            yield found


def _shared(sketches: Sequence[Sketch], alive: Mask) -> list[NDArray[np.uint32]]:
    """[rows] for each sketch: a bit for each band whose key another row has too."""
    bits = np.zeros(len(alive), dtype=np.uint32)
    for band in range(BANDS):
        columns = [np.asarray(sketch["bands"][band]) for sketch in sketches]
        for keys, places in by_key(columns, alive):
            same = keys[1:] == keys[:-1]
            bits[places[1:][same]] |= np.uint32(1 << band)
            bits[places[:-1][same]] |= np.uint32(1 << band)
    return np.split(bits, np.cumsum([len(sketch.alive) for sketch in sketches])[:-1])


class _Leaders:
    """Prompts with the responses that stand under each, of the rows that share a band."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._bands: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._prompts: list[Signatures] = []
        self._below: list[list[Signatures]] = []

    def add(self, keys: Sequence[tuple[int, int]], prompt: Signatures, below: Signatures) -> bool:
        """Add a row unless an earlier one is like it in every text; whether it was added."""
        near = sorted({each for key in keys for each in self._bands.get(key, ())})
        leaders = []
        if near:
            alike = self._alike(np.stack([self._prompts[each] for each in near]), prompt)
            leaders = [near[at] for at in np.flatnonzero(alike)]
        for leader in leaders:
            for other in self._below[leader]:
                if len(other) == len(below) and self._alike(other, below).all():
                    return False
        if not leaders:
            leaders = [len(self._prompts)]
            self._prompts.append(np.array(prompt))
            self._below.append([])
            for key in keys:
                self._bands[key].append(leaders[0])
        self._below[leaders[0]].append(np.array(below))
        return True

    def _alike(self, some: Signatures, other: Signatures) -> Mask:
        return np.asarray((some == other).mean(axis=1) >= self._threshold)
