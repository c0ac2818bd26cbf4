"""Rows that cover the set: greedy k-center."""

import random
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from posttrain.records import Record
from posttrain.select.measures import Measures
from posttrain.select.rows import response_of, text_of

Array = NDArray[np.float32]

WIDTH = 256


def k_center(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    n: PositiveInt,
    space: Literal["words", "policy"] = "words",
) -> Iterable[Record]:
    """`n` rows, each the farthest from all before it (arXiv:1708.00489), in that order.

    Within a factor of 2 of the smallest radius that `n` rows can have. Distances are Euclidean
    between unit vectors: of hashed words of prompt and response, or, with `space: policy`, of the
    policy's last hidden state at the end of the prompt. The first row is drawn from the seed.
    """
    given = list(rows)
    if space == "policy":
        vectors_NH = unit(measures.hidden(given))
    else:
        vectors_NH = hashed([f"{text_of(row)} {response_of(row)}" for row in given])
    start = rng.randrange(len(given)) if given else 0
    order, radii = spread(vectors_NH, min(n, len(given)), start)
    measures.note("k_center_radius", [given[at] for at in order], radii)
    return [given[at] for at in order]


def spread(vectors_NH: Array, n: int, start: int) -> tuple[list[int], list[float]]:
    """Places of `n` vectors, farthest first, and how far each was from those before it.

    The first has the distance 0. Work n * N * H, memory N * H.
    """
    order: list[int] = []
    radii: list[float] = []
    square_N = np.full(len(vectors_NH), np.inf, dtype=np.float32)
    lengths_N = np.einsum("nh,nh->n", vectors_NH, vectors_NH)
    at = start
    for _ in range(n):
        radii.append(float(np.sqrt(max(0.0, square_N[at]))) if order else 0.0)
        order.append(at)
        near_N = lengths_N + lengths_N[at] - 2 * (vectors_NH @ vectors_NH[at])
        square_N = np.minimum(square_N, near_N)
        square_N[at] = -1.0
        at = int(square_N.argmax())
    return order, radii


def hashed(texts: Sequence[str]) -> Array:
    """Unit vectors [N, WIDTH] of the words of each text, each word at two hashed places."""
    vectors_NH: Array = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for at, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            code = zlib.crc32(word.encode())
            vectors_NH[at, code % WIDTH] += 1.0 if code & (1 << 30) else -1.0
            vectors_NH[at, (code >> 10) % WIDTH] += 1.0 if code & (1 << 29) else -1.0
    return unit(vectors_NH)


def unit(vectors_NH: NDArray[Any]) -> Array:
    """The vectors at length 1; those of length 0 stay."""
    lengths_N1 = np.linalg.norm(vectors_NH, axis=1, keepdims=True)
    return np.asarray(vectors_NH / np.maximum(lengths_N1, 1e-12), dtype=np.float32)
