"""Paired comparison of two policies on the items they share, suite by suite.

Every item counts once, with its mean correctness over samples; items that share a prompt count
together. The p-values of all suites are adjusted together (Holm), so that one more suite does not
make a false alarm more likely.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from posttrain.artifacts import read_rows
from posttrain.gate.paired import Paired, paired
from posttrain.records import Sample, content_id
from posttrain.registry import Evidence
from posttrain.statistics import generator, holm

DIGITS = 6
ENOUGH = 10
"""Sign flips for each p-value that is below the strictest level of a test."""


class Comparison(BaseModel):
    """One suite: means over `n` items with `prompts` different prompts, challenger minus champion
    with its 95% interval, p-value alone and Holm-adjusted, one-sided p-value of a loss of the
    margin or more, and the smallest loss that fails four times in five."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    n: int
    prompts: int
    challenger: float
    champion: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    p_margin: float
    detectable: float


class Strictness(NamedTuple):
    """How sure a gate has to be: family-wise error over the suites of a night, how many nights
    share that of a promotion, the loss that does not count, and sign flips at least."""

    alpha: float = 0.05
    looks: int = 1
    margin: float = 0.02
    flips: int = 10_000


class Answered(NamedTuple):
    """The scores of a policy; `prompts` is the prompt of each item, by suite, as a digest."""

    evidence: Evidence
    prompts: Mapping[str, Mapping[str, str]]


def read_scores(folder: Path) -> Answered:
    """Read a scores folder. A suite's version is the digest of its items, prompts and answers."""
    samples: dict[str, dict[str, list[float]]] = {}
    prompts: dict[str, dict[str, str]] = {}
    asked: dict[str, set[str]] = {}
    for row in read_rows(folder, Sample):
        samples.setdefault(row.suite, {}).setdefault(row.item_id, []).append(row.correct)
        prompts.setdefault(row.suite, {})[row.item_id] = content_id(row.prompt)
        line = content_id(row.item_id, row.prompt, row.answer)
        asked.setdefault(row.suite, set()).add(line)
    scores = {
        suite: {item: sum(values) / len(values) for item, values in items.items()}
        for suite, items in samples.items()
    }
    versions = {
        suite: hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]
        for suite, lines in asked.items()
    }
    return Answered(Evidence(scores=scores, versions=versions), prompts)


def obstacles(name: str, ours: Answered, theirs: Evidence, min_items: int) -> list[str]:
    """Why a suite cannot be compared; empty when it can."""
    a, b = ours.evidence.scores.get(name), theirs.scores.get(name)
    if not a or not b:
        return [f"the {'champion' if a else 'challenger'} has no scores on it"]
    found = [
        f"{bad} scores of the {whose} are not finite or not in 0..1"
        for whose, scores in (("challenger", a), ("champion", b))
        if (bad := sum(not 0 <= value <= 1 for value in scores.values()))
    ]
    shared = a.keys() & b.keys()
    prompts = len({ours.prompts[name][item] for item in shared})
    if prompts < min_items:
        found.append(
            f"{len(shared)} shared items with {prompts} prompts ({len(a)} and {len(b)} items in"
            f" all), {min_items} prompts are needed"
        )
    if a.keys() != b.keys():
        found.append(
            f"{len(b.keys() - a.keys())} items of the champion are missing,"
            f" {len(a.keys() - b.keys())} are new"
        )
    elif ours.evidence.versions.get(name) != theirs.versions.get(name):
        found.append("another version of the suite: prompts or answers are not the champion's")
    return found


def compare(
    ours: Answered, theirs: Evidence, suites: Iterable[str], strictness: Strictness, seed: int
) -> list[Comparison]:
    """Compare suites that have no obstacles, in the given order.

    More flips than asked for where so many suites and looks share alpha that no p-value of the
    ones asked for would be small enough.
    """
    names = list(suites)
    level = strictness.alpha / max(1, len(names))
    flips = max(strictness.flips, math.ceil(ENOUGH * strictness.looks / level))
    found = []
    for name in names:
        a, b = ours.evidence.scores[name], theirs.scores[name]
        items = sorted(a.keys() & b.keys())
        prompts = [ours.prompts[name][item] for item in items]
        number = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
        pair = paired(
            np.array([a[item] - b[item] for item in items]),
            np.array([number[prompt] for prompt in prompts]),
            generator(seed, f"gate/{name}"),
            flips=flips,
            level=level,
            margin=strictness.margin,
        )
        means = [math.fsum(side[item] for item in items) / len(items) for side in (a, b)]
        found.append((name, len(items), len(number), means, pair))
    adjusted = holm([pair.p for *_, pair in found])
    return [_comparison(*each, p_holm) for each, p_holm in zip(found, adjusted, strict=True)]


def _comparison(
    name: str, n: int, prompts: int, means: list[float], pair: Paired, p_holm: float
) -> Comparison:
    ours, theirs = means
    numbers = {
        "challenger": ours,
        "champion": theirs,
        "difference": pair.value,
        "low": pair.low,
        "high": pair.high,
        "p": pair.p,
        "p_holm": p_holm,
        "p_margin": pair.p_margin,
        "detectable": pair.detectable,
    }
    rounded = {key: round(value, DIGITS) + 0.0 for key, value in numbers.items()}
    return Comparison(suite=name, n=n, prompts=prompts, **rounded)
