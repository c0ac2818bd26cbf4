"""When two texts are the same problem: normal forms, shingles, and sketches of likeness.

Word problems made from few sentences are alike by nature and differ in their numbers, so the
numbers of a text, in order, are part of each of its shingles: texts with other numbers share
none. With words and word pairs a Jaccard similarity of 0.6 finds, on 16,000 procedural rows,
every reworded and renamed copy; with every filter on, 1 clean row in 200 is lost.

All texts of a column are worked on at once: words become 64-bit numbers that are the same in
every process, and shingles, runs and signatures are made of these by array arithmetic.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Signatures = NDArray[np.int32]

PERMUTATIONS = 128
BANDS = 32
_BLOCK = 4096
_TEXTS = 64
_VOCABULARY = 1 << 20

_END = "\0"
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_TOKEN = re.compile(
    r"\d+(?:[.,]\d+)*"  # a number
    r"|[\u3040-\u30ff\u4e00-\u9fff]"  # a character of a script without spaces
    r"|[^\W\d_]+"  # a word
    r"|[+*/=^<>%()]|-(?=\s*\d)"  # an operator
    rf"|{_END}"
)


class Words(NamedTuple):
    """The words of N texts: a 64-bit hash of each word, text after text; odd is a number.

    Words are words, numbers and operators; case, spacing, punctuation and digit grouping are
    gone. `ends` [N + 1] are the bounds of the texts, `sizes` the characters of each word.
    """

    hashes: Hashes
    sizes: NDArray[np.int32]
    ends: NDArray[np.int64]

    def keep(self, mask: NDArray[np.bool_]) -> "Words":
        """The words of the texts where the mask holds."""
        counts = np.diff(self.ends)
        inside = np.repeat(mask, counts)
        ends = np.concatenate([[0], np.cumsum(counts[mask])])
        return Words(self.hashes[inside], self.sizes[inside], ends)


class _Vocabulary(dict[str, int]):
    """Word -> hash; forgotten when it grows large, which changes no hash."""

    def __missing__(self, word: str) -> int:
        if len(self) > _VOCABULARY:
            self.clear()
        number = word[0].isdigit()
        plain = (word.replace(",", "") if number else word).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(plain, digest_size=8).digest()
        made = int.from_bytes(digest, "little") & ~1 | number
        self[word] = made
        return made


_vocabulary = _Vocabulary()


def words_of(texts: Sequence[str | None]) -> Words:
    """Read texts into words, all in one go; an absent text has none."""
    parts = [(text or "").replace(_END, " ") for text in texts]
    found = _found(_END.join((*parts, "")))
    hashes = np.fromiter(map(_vocabulary.__getitem__, found), dtype=np.uint64, count=len(found))
    sizes = np.fromiter(map(len, found), dtype=np.int32, count=len(found))
    bounds = np.flatnonzero(hashes == np.uint64(_vocabulary[_END]))
    ends = np.concatenate([[0], bounds - np.arange(len(bounds))])
    silent: list[int] = np.flatnonzero(np.diff(ends) == 0).tolist()
    if any(parts[at].split() for at in silent):
        # Signs alone (emoji, dashes) stand for themselves, or all such texts would be the same.
        return words_of(_spelled(parts, silent))
    inside = np.delete(np.arange(len(found)), bounds)
    return Words(hashes[inside], sizes[inside], ends)


def _spelled(parts: list[str], silent: Sequence[int]) -> list[str]:
    """The texts, with the signs of those without words spelled out as words that no text has."""
    for at in silent:
        signs = [each.encode("utf-8", "surrogatepass").hex() for each in _fold(parts[at]).split()]
        parts[at] = " ".join(f"sign{each}".translate(_LETTERS) for each in signs)
    return parts


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _found(text: str) -> list[str]:
    return _TOKEN.findall(_fold(text))


def normal_forms(words: Words) -> Hashes:
    """[N, 2]: 128 bits of the words of each text in order."""
    rank = np.arange(len(words.hashes)) - np.repeat(words.ends[:-1], np.diff(words.ends))
    return np.stack(
        [_sums(words.hashes ^ np.uint64(salt), rank, words.ends) for salt in (1 << 40, 1 << 50)],
        axis=1,
    )


def _sums(hashes: Hashes, rank: NDArray[np.int64], ends: NDArray[np.int64]) -> Hashes:
    """A hash of each stretch of hashes and their ranks."""
    made = mixed(hashes ^ rank.astype(np.uint64) * np.uint64(0xD1342543DE82EF95))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(made, dtype=np.uint64)])
    # Sums wrap around, and so do their differences: what is left is the sum within a stretch.
    return mixed(sums[ends[1:]] - sums[ends[:-1]])


def mixed(values: Hashes) -> Hashes:
    """The values with their bits well mixed (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def runs(words: Words, length: int) -> tuple[Hashes, NDArray[np.int64]]:
    """A hash of every run of `length` words within one text, and where it begins."""
    starts = np.arange(max(0, len(words.hashes) - length + 1))
    text = np.repeat(np.arange(len(words.ends) - 1), np.diff(words.ends))
    starts = starts[text[starts] == text[starts + length - 1]]
    found = np.zeros(len(starts), dtype=np.uint64)
    for place in range(length):
        found = found * np.uint64(0x9E3779B97F4A7C15) + words.hashes[starts + place]
    return mixed(found), starts


def _numbers(words: Words) -> Hashes:
    """[N]: a hash of the sequence of numbers of each text."""
    odd = (words.hashes & np.uint64(1)).astype(bool)
    bounds = np.concatenate([[0], np.cumsum(odd)])[words.ends]
    rank = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return _sums(words.hashes[odd], rank, bounds)


def shingles(words: Words) -> tuple[Hashes, NDArray[np.int64]]:
    """Words and pairs of words, each under the sequence of its text's numbers; never empty.

    Returns the hashes, text after text, and the bounds of the texts.
    """
    counts = np.diff(words.ends)
    ends = np.concatenate([[0], np.cumsum(np.maximum(2 * counts - 1, 1))])
    below = _numbers(words)
    made = np.repeat(below, np.diff(ends))
    pairs, starts = runs(words, 2)
    text = np.repeat(np.arange(len(counts)), counts)
    shift = ends[:-1] - words.ends[:-1]
    made[np.arange(len(text)) + shift[text]] ^= words.hashes
    made[starts + (shift + counts)[text[starts]]] ^= pairs
    return mixed(made), ends


@functools.cache
def _permutations() -> tuple[Signatures, Signatures]:
    """The odd factors and the offsets of the permutations x -> a x + b of 32-bit numbers."""
    drawn = mixed(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64) << np.uint64(20))
    low = drawn.astype(np.uint32).view(np.int32)
    return low[:PERMUTATIONS] | np.int32(1), low[PERMUTATIONS:]


def sketched(words: Words) -> Signatures:
    """[N, PERMUTATIONS]: MinHash signatures of the shingles; two texts agree in as large a share
    of places as the Jaccard similarity of their shingles (to 0.04, one standard error at 0.6).

    torch, for its integer kernels: from words to an array 5 us a text of 60 words, where rensa's
    digests, from shingles ready made, take 12 (benchmarks/curate.py).
    """
    import torch

    made, ends = shingles(words)
    low = torch.from_numpy((made >> np.uint64(32)).astype(np.uint32).view(np.int32))
    factors, offsets = map(torch.from_numpy, _permutations())
    lengths = np.diff(ends)
    order = np.argsort(lengths, kind="stable")
    found = np.empty((len(lengths), PERMUTATIONS), dtype=np.int32)
    at = 0
    while at < len(order):
        # Texts of like length make a block; the short ones repeat their last shingle.
        size = max(1, _BLOCK // int(lengths[order[min(at + _TEXTS, len(order)) - 1]]))
        block = order[at : at + min(size, _TEXTS)]
        longest = int(lengths[block[-1]])
        best = torch.full((len(block), PERMUTATIONS), 2**31 - 1, dtype=torch.int32)
        for start in range(0, longest, _BLOCK):
            place = np.arange(start, min(longest, start + _BLOCK))
            index = ends[block][:, None] + np.minimum(place, lengths[block][:, None] - 1)
            hashes = low[torch.from_numpy(index)][:, :, None]
            best = torch.minimum(best, torch.addcmul(offsets, hashes, factors).amin(1))
        found[block] = best.numpy()
        at += len(block)
    return found


def bands(signatures: Signatures) -> Hashes:
    """[N, BANDS]: a key of each band of four places; texts of one key in one band may be alike.

    With 32 bands of 4 a pair at 0.6 meets in 98.8% of cases: 1 - (1 - 0.6^4)^32.
    """
    halves = np.ascontiguousarray(signatures).view(np.uint64)
    halves = halves.reshape(len(signatures), BANDS, PERMUTATIONS // BANDS // 2)
    keys = np.zeros((len(signatures), BANDS), dtype=np.uint64)
    for part in range(halves.shape[2]):
        keys = mixed(keys * np.uint64(0x9E3779B97F4A7C15) + halves[:, :, part])
    return keys


class Known:
    """Hashes to look others up in: a table of bits first, for most are not there."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = np.sort(hashes)
        self._shift = np.uint64(64 - max(10, 4 + len(hashes).bit_length()))
        self._bits = np.zeros(1 << 64 - int(self._shift), dtype=bool)
        self._bits[hashes >> self._shift] = True

    def holds(self, hashes: Hashes) -> NDArray[np.intp]:
        """The places of those hashes that are known."""
        places = np.flatnonzero(self._bits[hashes >> self._shift])
        if len(places):
            asked = hashes[places]
            places = places[self.hashes[np.searchsorted(self.hashes[:-1], asked)] == asked]
        return places
