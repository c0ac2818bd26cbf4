"""Filters on embeddings: rows that mean the same as an earlier one, and a spread-out core.

The vectors come from `posttrain.curate.embedding`. What is embedded is the prompt with the
response, or with the chosen one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from posttrain.curate.batch import Batch
from posttrain.curate.embedding import CHAR_NGRAMS, embedded
from posttrain.curate.filters.duplicates import split
from posttrain.curate.ledger import KINDS
from posttrain.curate.operators import Arrays, Reasons, Sketch

_SAMPLE = 20_000
_ROUNDS = 10
_CLUSTER = 512
_BLOCK = 2048

Kind = Literal["evaluation", "demonstrations", "preferences", "prompts"]


def _sketch(batch: Batch, encoder: str, where: str) -> Arrays:
    columns = [batch.values(name) for name in ("prompt", "response", "chosen")]
    texts = ["\n".join(filter(None, row)) for row in zip(*columns, strict=True)]
    return {"vectors": embedded(texts, encoder, where), "kinds": batch.kinds()}


def _rows(sketches: Sequence[Sketch], kind: int) -> NDArray[np.intp]:
    """The places of the rows of a kind that are alive, over all sketches."""
    own = [sketch.alive & (sketch["kinds"] == kind) for sketch in sketches]
    return np.flatnonzero(np.concatenate(own))


class _Stored:
    """The vectors of all sketches, fetched by place."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._parts = [sketch["vectors"] for sketch in sketches]
        self._ends = np.cumsum([len(part) for part in self._parts])

    def __getitem__(self, places: NDArray[np.intp]) -> NDArray[np.float32]:
        part = np.searchsorted(self._ends, places, side="right")
        found = np.empty((len(places), self._parts[0].shape[1]), dtype=np.float32)
        for each in np.unique(part):
            own = part == each
            start = self._ends[each] - len(self._parts[each])
            found[own] = self._parts[each][places[own] - start]
        return found


@dataclass
class SemanticDuplicate:
    """Drop rows whose vector has a cosine of `threshold` or more with that of an earlier row of
    their kind (SemDeDup, arXiv:2303.09540, which keeps the one farthest from the centre).

    Rows are compared within clusters of about 512, by k-means on a sample of 20,000, so that
    time grows with rows times clusters and not with pairs. The default threshold is assumed for
    `char_ngrams`, which knows spelling alone and takes problems with other numbers for the same;
    for a sentence encoder take 0.95 or so.
    """

    _: KW_ONLY
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    encoder: str = CHAR_NGRAMS

    def sketch(self, batch: Batch, /) -> Arrays:
        """A vector of half floats, 1 KB a row for `char_ngrams`."""
        return _sketch(batch, self.encoder, "curate.filters.semantic_duplicate.encoder")

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        vectors = _Stored(sketches)
        later = np.zeros(sum(len(sketch.alive) for sketch in sketches), dtype=bool)
        for kind in range(len(KINDS)):
            rows = _rows(sketches, kind)
            cluster = clusters(vectors, rows)
            for each in np.unique(cluster):
                own = rows[cluster == each]
                later[own[repeats(vectors[own], self.threshold)]] = True
        yield from split("means the same as an earlier row", later, sketches)


def clusters(vectors: _Stored, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """[rows]: the cluster of each, by spherical k-means on evenly spaced rows."""
    count = max(1, len(rows) // _CLUSTER)
    sample = vectors[rows[:: max(1, len(rows) // _SAMPLE)]] if count > 1 else None
    if sample is None:
        return np.zeros(len(rows), dtype=np.intp)
    centres = sample[np.linspace(0, len(sample) - 1, count).astype(np.intp)]
    for _ in range(_ROUNDS):
        nearest = (sample @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, sample)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-12), centres)
    blocks = [rows[at : at + _BLOCK] for at in range(0, len(rows), _BLOCK)]
    return np.concatenate([(vectors[block] @ centres.T).argmax(axis=1) for block in blocks])


def repeats(vectors: NDArray[np.float32], threshold: float) -> NDArray[np.intp]:
    """The places of those that are like an earlier one that stays."""
    gone = np.zeros(len(vectors), dtype=bool)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        like = vectors[: start + len(block)] @ block.T >= threshold - 1e-3
        for at in np.flatnonzero(np.triu(like, 1 - start).any(axis=0)):
            gone[start + at] = bool((like[: start + at, at] & ~gone[: start + at]).any())
    return np.flatnonzero(gone)


@dataclass
class KCenter:
    """Keep `k` rows of a kind that leave no other row of it far from a kept one; drop the rest.

    Greedy: first the row nearest to the mean, then again and again the row farthest from all
    kept ones (k-center, arXiv:1708.00489; at most twice the best radius). Other kinds stay.
    """

    _: KW_ONLY
    k: PositiveInt = 5700
    kind: Kind = "preferences"
    encoder: str = CHAR_NGRAMS

    def sketch(self, batch: Batch, /) -> Arrays:
        """A vector of half floats, 1 KB a row for `char_ngrams`."""
        return _sketch(batch, self.encoder, "curate.filters.k_center.encoder")

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        stored, rows = _Stored(sketches), _rows(sketches, KINDS.index(self.kind))
        dropped = np.zeros(sum(len(sketch.alive) for sketch in sketches), dtype=bool)
        dropped[rows] = True
        dropped[rows[spread(stored[rows], self.k)]] = False
        yield from split("near a kept row", dropped, sketches)


def spread(vectors: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The places of `k` unit vectors, each the farthest from those before it."""
    if len(vectors) <= k:
        return np.arange(len(vectors))
    chosen = [int((vectors @ vectors.mean(axis=0)).argmax())]
    nearest = vectors @ vectors[chosen[0]]
    while len(chosen) < k:
        nearest[chosen[-1]] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return np.array(chosen)
