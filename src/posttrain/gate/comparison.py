"""Paired comparison of two policies on the items they share, suite by suite.

Every item counts once, with its mean correctness over samples. The p-values of all suites are
adjusted together (Holm), so that one more suite does not make a false alarm more likely.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from posttrain.artifacts import read_rows
from posttrain.records import Sample
from posttrain.registry import ItemScores
from posttrain.statistics import Difference, generator, holm, paired_difference

DIGITS = 6


class Comparison(BaseModel):
    """One suite: means over the `n` shared items, challenger minus champion with its 95%
    interval, p-value alone and Holm-adjusted, and the smallest difference it could find."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    n: int
    challenger: float
    champion: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    detectable: float


def read_item_scores(folder: Path) -> ItemScores:
    """Mean correctness of each item of each suite in a scores folder."""
    samples: dict[str, dict[str, list[float]]] = {}
    for row in read_rows(folder, Sample):
        samples.setdefault(row.suite, {}).setdefault(row.item_id, []).append(row.correct)
    return {
        suite: {item: math.fsum(values) / len(values) for item, values in items.items()}
        for suite, items in samples.items()
    }


def obstacles(
    ours: Mapping[str, float] | None,
    theirs: Mapping[str, float] | None,
    min_items: int,
) -> list[str]:
    """Why a suite cannot be compared; empty when it can."""
    if not ours or not theirs:
        whose = "challenger" if not ours else "champion"
        return [f"the {whose} has no scores on it"]
    found = [
        f"{sum(not math.isfinite(v) for v in scores.values())} scores of the {whose} are not finite"
        for whose, scores in (("challenger", ours), ("champion", theirs))
        if not all(map(math.isfinite, scores.values()))
    ]
    shared = len(ours.keys() & theirs.keys())
    if shared < min_items:
        found.append(
            f"{shared} shared items ({len(ours)} and {len(theirs)} in all), {min_items} are needed"
        )
    return found


def compare(
    ours: ItemScores, theirs: ItemScores, suites: Iterable[str], resamples: int, seed: int
) -> list[Comparison]:
    """Compare suites that have no obstacles, in the given order."""
    names = list(suites)
    pairs = [(ours[name], theirs[name], sorted(ours[name].keys() & theirs[name])) for name in names]
    paired = [
        (np.array([a[item] for item in shared]), np.array([b[item] for item in shared]))
        for a, b, shared in pairs
    ]
    differences = [
        paired_difference(a, b, resamples, generator(seed, f"gate/{name}"))
        for name, (a, b) in zip(names, paired, strict=True)
    ]
    adjusted = holm([found.p for found in differences])
    return [
        _comparison(name, a, b, found, p_holm)
        for name, (a, b), found, p_holm in zip(names, paired, differences, adjusted, strict=True)
    ]


def _comparison(
    name: str, ours: np.ndarray, theirs: np.ndarray, found: Difference, p_holm: float
) -> Comparison:
    numbers = {
        "challenger": float(ours.mean()),
        "champion": float(theirs.mean()),
        "difference": found.value,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "p_holm": p_holm,
        "detectable": found.detectable,
    }
    rounded = {key: round(value, DIGITS) + 0.0 for key, value in numbers.items()}
    return Comparison(suite=name, n=len(ours), **rounded)
