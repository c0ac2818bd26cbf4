"""Problems of our own that ask for biology, chemistry, physics and arithmetic at once."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import PositiveInt

from posttrain.raw.sources.source import Skipped
from posttrain.records import RawRow

PLANCK, LIGHT = 6.626e-34, 2.998e8
"""In J s and m/s."""
CLEAR = 0.1
"""How far from a whole number an answer may be (assumed), so that rounding cannot decide it."""


class Duplex(NamedTuple):
    """A strand pair and the light that opens it: base pairs, 1e-20 J a bond, nanometres."""

    at_pairs: int
    gc_pairs: int
    bond: float
    wavelength: int

    @property
    def photons(self) -> float:
        """Bonds times energy per bond over h c / wavelength."""
        energy = (2 * self.at_pairs + 3 * self.gc_pairs) * self.bond * 1e-20
        return energy / (PLANCK * LIGHT / (self.wavelength * 1e-9))


FIRST = Duplex(at_pairs=6, gc_pairs=4, bond=4.0, wavelength=414)


def multi_skill(seed: int, /, *, n: PositiveInt = 1) -> Iterator[RawRow | Skipped]:
    """Yield `n` problems in the manner of Polymath learning's synthetic sample.

    arXiv:2601.03111 names the subjects of its sample, DNA, hydrogen bonds and photons, and its
    answer, 2; the text is ours. The first problem has that answer, the others are drawn.
    """
    rng = random.Random(f"{seed}/multi_skill")
    told: set[Duplex] = set()
    duplex = FIRST
    while True:
        photons = duplex.photons
        if duplex not in told and photons > 1.5 and abs(photons - round(photons)) < CLEAR:
            told.add(duplex)
            yield problem(duplex)
        if len(told) == n:
            return
        pairs = rng.randint(2, 30), rng.randint(2, 30)
        duplex = Duplex(*pairs, bond=rng.randint(20, 60) / 10, wavelength=rng.randint(200, 700))


def problem(duplex: Duplex) -> RawRow:
    """The question and its answer, a whole number."""
    prompt = (
        f"A DNA duplex has {duplex.at_pairs} A-T and {duplex.gc_pairs} G-C base pairs. Hydrogen"
        " bonds hold it together, 2 in each A-T pair and 3 in each G-C pair, and to break one of"
        f" them takes {duplex.bond:.1f}e-20 J. The energy comes from light with a wavelength of"
        f" {duplex.wavelength} nm. Use h = 6.626e-34 J s and c = 2.998e8 m/s. How many photons, to"
        " the nearest whole number, does it take in total to break all the bonds?"
    )
    answer = str(round(duplex.photons))
    return RawRow.of(source="multi_skill", task="number", prompt=prompt, answer=answer)
