"""Filters of text quality: language, repetition and boilerplate.

They look at the prompt and at the texts that a model may learn to write: the response and the
chosen one. A rejected response may be as bad as it likes.
"""

import functools
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from posttrain.curate.batch import Batch, Mask
from posttrain.curate.likeness import Hashes, Words, mixed, runs, words_of
from posttrain.curate.operators import Reasons, reasons

LEARNT = ("prompt", "response", "chosen")

Share = Annotated[float, Field(ge=0, le=1)]
Floats = NDArray[np.float64]

Language = Literal[
    "en", "de", "fr", "es", "it", "pt", "nl", "zh", "ja", "ko", "ru", "ar", "hi", "el"
]

SCRIPTS: dict[str, tuple[Language, ...]] = {
    r"\p{Latin}": ("en", "de", "fr", "es", "it", "pt", "nl"),
    r"\p{Han}": ("zh", "ja"),
    r"[\p{Hiragana}\p{Katakana}]": ("ja",),
    r"\p{Hangul}": ("ko",),
    r"\p{Cyrillic}": ("ru",),
    r"\p{Arabic}": ("ar",),
    r"\p{Devanagari}": ("hi",),
    r"\p{Greek}": ("el",),
}
"""A class of letters -> the languages written in it."""

COMMON = {
    "en": "the of and to in is that it for was on are with as be this have from at you how not a an"
    " he she his her they i what if by or all will there per each many much has had does did can",
    "de": "der die und das ist von den mit zu im nicht ein eine auf für dem sich auch wie wird",
    "fr": "le la les et des est dans une que pour qui sur pas plus avec sont ce par au vous",
    "es": "el los las que del una para con por su como es más lo pero sus se son esta cuál",
    "it": "il che di è una per non del della con sono gli si come più alla questo nel le anche",
    "pt": "o os as que não uma para com do da em um por mais dos como é ao seu são",
    "nl": "de het een van en dat op te zijn voor met niet aan ook er maar om bij naar wordt",
}
"""The words that make up a quarter to a half of any running text of a language."""


@dataclass
class LanguageCheck:
    """Drop rows with a text that is in none of the languages `keep`.

    At least `letters` of a text's letters must be of the script of a kept language. Of the
    languages of the Latin script, the one whose COMMON words make up the largest share of the
    text is its language, if it has `words` words (assumed) and that share is 5 % or more
    (assumed): short texts, names and formulas belong to no language, and stay.
    """

    _: KW_ONLY
    keep: tuple[Language, ...] = ("en",)
    letters: Share = 0.5
    words: PositiveInt = 20

    def __call__(self, batch: Batch, /) -> Reasons:
        other = np.zeros(len(batch), dtype=bool)
        foreign = np.zeros(len(batch), dtype=bool)
        for name in LEARNT:
            other |= self._other_script(batch, name)
            foreign |= self._foreign(batch.words(name))
        return reasons(batch, ("another script", other), ("another language", foreign))

    def _other_script(self, batch: Batch, name: str) -> Mask:
        column = pc.fill_null(batch.column(name), "")
        scripts = [each for each, languages in SCRIPTS.items() if {*languages} & {*self.keep}]
        found = np.zeros(len(batch), dtype=bool)
        # ASCII has no other letters than Latin ones; classes of Unicode are slow to count.
        asked = np.ones(len(batch), dtype=bool)
        if r"\p{Latin}" in scripts:
            asked = ~np.asarray(pc.string_is_ascii(column))
        column = column.filter(pa.array(asked))
        total = np.asarray(pc.count_substring_regex(column, r"\p{L}"))
        own = np.asarray(pc.count_substring_regex(column, "|".join(scripts)))
        found[asked] = own < self.letters * total
        return found

    def _foreign(self, words: Words) -> Mask:
        counts = np.diff(words.ends)
        shares = np.stack([_share_of(words, each) for each in COMMON], axis=1)
        best = np.array([each in self.keep for each in COMMON])[shares.argmax(axis=1)]
        return np.asarray(~best & (counts >= self.words) & (shares.max(axis=1) >= 0.05))


@functools.cache
def _common(language: str) -> Hashes:
    return words_of([COMMON[language]]).hashes


def _share_of(words: Words, language: str) -> Floats:
    """The share of each text's words that are COMMON ones of a language."""
    hits = _sums(np.isin(words.hashes, _common(language)), words.ends)
    return np.asarray(hits / np.maximum(np.diff(words.ends), 1))


def _sums(values: NDArray[np.generic], ends: NDArray[np.int64]) -> Floats:
    """The sum of the values within each text."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(sums[ends[1:]] - sums[ends[:-1]])


@dataclass
class Repetition:
    """Drop rows with a text that says the same over and over (Gopher, arXiv:2112.11446, A.1.1).

    `lines`: the share of lines that are duplicates of another, 0.3. `top`: of n = 2, 3, 4, the
    share of characters in the most frequent n-gram, 0.20, 0.18, 0.16. `duplicate`: of n = 5 to
    10, the share of characters in n-grams that occur more than once, 0.15 to 0.10. Texts of less
    than `words` words are left alone, as the paper drops documents below 50. The limits are for web
    pages: of GSM8K's problems and solutions they drop one in six; raise `words` for such rows.
    """

    _: KW_ONLY
    words: PositiveInt = 50
    lines: Share = 0.3
    top: tuple[Share, ...] = (0.20, 0.18, 0.16)
    duplicate: tuple[Share, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)

    def __call__(self, batch: Batch, /) -> Reasons:
        found: dict[str, Mask] = {}
        for name in LEARNT:
            words = batch.words(name)
            long = np.diff(words.ends) >= self.words
            if not long.any():
                continue
            places = np.flatnonzero(long)
            for reason, mask in self._checks(batch, name, words.keep(long), places):
                found.setdefault(reason, np.zeros(len(batch), dtype=bool))[places[mask]] = True
        return reasons(batch, *found.items())

    def _checks(
        self, batch: Batch, name: str, words: Words, places: NDArray[np.intp]
    ) -> Iterator[tuple[str, Mask]]:
        texts = batch.values(name)
        repeated = np.array([repeated_lines(texts[at]) for at in places])
        yield "duplicate lines", repeated > self.lines
        size = np.maximum(_sums(words.sizes, words.ends), 1)
        for n, limit in enumerate(self.top, 2):
            yield f"one {n}-gram again and again", top_ngram(words, n) / size > limit
        for n, limit in enumerate(self.duplicate, 5):
            yield f"duplicate {n}-grams", duplicate_ngrams(words, n) / size > limit


def repeated_lines(text: str) -> float:
    """The share of lines that repeat an earlier one; blank lines do not count."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def top_ngram(words: Words, n: int) -> Floats:
    """[N]: characters in all occurrences of the n-gram that takes up most; 0 where none recurs."""
    found = np.zeros(len(words.ends) - 1)
    text, starts, count = _counted(words, n)
    spans = np.convolve(words.sizes, np.ones(n, dtype=np.int64))[n - 1 :]
    again = count > 1
    np.maximum.at(found, text[again], (spans[starts] * count)[again])
    return found


def duplicate_ngrams(words: Words, n: int) -> Floats:
    """[N]: characters of the words that lie in any n-gram that occurs more than once."""
    _, starts, count = _counted(words, n)
    edges = np.zeros(len(words.hashes) + 1, dtype=np.int64)
    np.add.at(edges, starts[count > 1], 1)
    np.add.at(edges, starts[count > 1] + n, -1)
    return _sums(words.sizes * (np.cumsum(edges)[:-1] > 0), words.ends)


def _counted(
    words: Words, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of each n-gram: its text, where it begins, and how often its text has it."""
    hashes, starts = runs(words, n)
    text = np.searchsorted(words.ends, starts, side="right") - 1
    keys = mixed(hashes ^ text.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return text, starts, counts[place]


PHRASES = (
    r"as an ai language model",
    r"i('m| am) (sorry|unable)[^.]{0,20}(as|but) (an ai|i can(no|')t)",
    r"my knowledge cut-?off",
    r"lorem ipsum",
    r"(enable|requires) javascript",
    r"(accept|use) (all )?cookies",
    r"all rights reserved",
    r"click here to",
)
"""What speaks of its maker or of a web page and not of the matter (assumed)."""


@dataclass
class Boilerplate:
    """Drop rows with one of `phrases` in a text; case is ignored.

    A phrase is a regular expression of RE2 (no look-around), `|` and all.
    """

    _: KW_ONLY
    phrases: tuple[str, ...] = PHRASES

    def __call__(self, batch: Batch, /) -> Reasons:
        pattern = "|".join(f"(?:{each})" for each in self.phrases)
        found = [
            np.asarray(
                pc.fill_null(
                    pc.match_substring_regex(batch.column(name), pattern, ignore_case=True), False
                ),
                dtype=bool,
            )
            for name in LEARNT
        ]
        return reasons(batch, ("boilerplate", found[0] | found[1] | found[2]))
