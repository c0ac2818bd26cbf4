"""The sample that asks for the most skills (Polymath learning, arXiv:2601.03111)."""

import random
import re
from collections.abc import Iterable

from pydantic import PositiveInt

from posttrain.records import Record
from posttrain.select.measures import Measures
from posttrain.select.rows import difficulty_of, id_of, text_of
from posttrain.select.selectors.history import lim_scores

TARGET = 0.6

SPECTRUM = {
    "addition": r"\d+ more\b(?! than)|gets \d|gives (?:him|her) \d|altogether|in total|\bsum\b"
    r"|on Monday and|more than|\+",
    "subtraction": r"\bloses\b|\bsells\b|them break\b|takes \d+ of|gives \d+ to|\bfewer\b"
    r"|\bdifferen",
    "multiplication": r"\btimes\b|boxes of|bags with|\d in each|\bdoubl|\bproduct\b|\\times|\\cdot",
    "division": r"\bhalf\b|\bshare\b|\bsplits?\b|\bequally\b|\bquotient\b|\\frac|\bper\b|\bratio\b",
    "relevance": r"weighs \d+ kilos|walk takes|on the table\.|day \d+ of the year",
    "algebra": r"(?i)\bsolve|\bequation|\bvariable|\bpolynomial|\broots?\b|\bx\b",
    "precalculus": r"(?i)\bsin\b|\bcos\b|\btan\b|\bvector|\bmatrix|\bcomplex number|\blog\b|\\vec",
    "calculus": r"(?i)\bderivative|\bintegral|\blimit\b|\\int|\\lim|f'\(",
    "geometry": r"(?i)\btriangle|\bcircle|\bsquare|\barea\b|\bangle|\bradius|\bcube\b|\bvolume\b",
    "number theory": r"(?i)\bdivisors?\b|\bprimes?\b|\bremainder|\bdivisible|\bmodulo|\binteger",
    "probability": r"(?i)\bprobabilit|\brandom|\bdice\b|\bchance\b|\bexpected\b",
    "combinatorics": r"(?i)how many ways|\barrange|\bpermutation|\bcombination|\bchoose\b",
    "statistics": r"(?i)\bmean\b|\bmedian\b|\baverage|\bvariance\b|\bpercent|\\%",
    "physics": r"(?i)\bvelocity|\bspeed\b|\bpressure|\bphotons?\b|\benergy|\bwavelength",
    "chemistry": r"(?i)\bions?\b|\bmolecul|\bhydrogen|\bmoles?\b|\bacid\b|\bcatalyst",
    "biology": r"(?i)\bDNA\b|\bcells?\b|\bmembrane|\benzyme|\bplasmid|\bspecies\b",
}
"""Skill -> what a problem's text says where it needs it. The paper asks a language model."""


def salient_skills(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    n: PositiveInt = 1,
    target: float = TARGET,
) -> Iterable[Record]:
    """The `n` rows whose text asks for the most distinct skills of the spectrum.

    Ties go to the LIM score nearest to `target`, where the stage was given histories, then to the
    higher difficulty, then to the smaller id (the order of the first two is assumed). Without
    histories this is all that is known of a row before any training: a proxy for the paper's
    choice, not a measure of what a sample teaches.
    """
    given = list(rows)
    counts = measures.note("skills", given, [len(skills_of(text_of(row))) for row in given])
    away: dict[str, float] = {}
    if measures.has("history"):
        known, scores = lim_scores(given, measures)
        away = {id_of(row): abs(s - target) for row, s in zip(known, scores, strict=True)}

    def place(at: int) -> tuple[float, float, int, str]:
        row = given[at]
        return -counts[at], away.get(id_of(row), 1e9), -difficulty_of(row), id_of(row)

    return [given[at] for at in sorted(range(len(given)), key=place)[:n]]


def skills_of(text: str) -> set[str]:
    """The skills of the spectrum that a text asks for."""
    return {name for name, cues in SPECTRUM.items() if re.search(cues, text)}
