"""Policies against each other on the same items: the ladder, its steps, bands and examples."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from posttrain.records import Sample
from posttrain.report.facts import Answer, Cell, Delta, Estimate, Example, TaskScore
from posttrain.statistics import (
    Difference,
    Interval,
    clustered_share,
    generator,
    paired_difference,
)

LADDER = ("base", "sft", "rejected_sft", "rl")
PASS_AT_1 = ("pass_at_1", "accuracy", "exact_match")

RESAMPLES = 4000

Rows = Mapping[str, Sequence[Sample]]


def ladder_order(policies: Iterable[str]) -> list[str]:
    """`base` to `rl` as they are trained, then the others by name."""
    rank = {name: i for i, name in enumerate(LADDER)}
    return sorted(policies, key=lambda name: (rank.get(name, len(rank)), name))


def widest(policies: Rows) -> str:
    """The suite that the most policies answered, the one with the most items among those."""
    items: dict[str, dict[str, set[str]]] = {}
    for policy, rows in policies.items():
        for row in rows:
            items.setdefault(row.suite, {}).setdefault(policy, set()).add(row.item_id)
    sizes = {suite: (len(by), max(map(len, by.values()))) for suite, by in items.items()}
    return min(sizes, key=lambda s: (-sizes[s][0], -sizes[s][1], s), default="")


def by_item(rows: Iterable[Sample], suite: str) -> dict[str, float]:
    """Item -> share of its samples that are correct."""
    items: dict[str, list[float]] = {}
    for row in rows:
        if row.suite == suite:
            items.setdefault(row.item_id, []).append(row.correct)
    return {item: fmean(found) for item, found in items.items()}


def estimate(found: Interval | Difference, n: int) -> Estimate:
    """What the page keeps of an interval over `n` items."""
    return Estimate(value=found.value, low=found.low, high=found.high, n=n)


def ladder_of(policies: Rows, scores: Iterable[TaskScore], suite: str) -> dict[str, Estimate]:
    """pass@1 of every policy on the suite: the benchmark's own score, else from its rows."""
    told = {
        (s.policy, s.score.metric): s.score
        for s in reversed(list(scores))
        if s.score.suite == suite
    }
    ladder = {}
    for policy in ladder_order({*policies, *(p for p, _ in told)} - {"best_of_n"}):
        score = next((told[policy, m] for m in PASS_AT_1 if (policy, m) in told), None)
        if score:
            ladder[policy] = Estimate(value=score.value, low=score.low, high=score.high, n=score.n)
        elif found := list(by_item(policies.get(policy, ()), suite).values()):
            ladder[policy] = estimate(clustered_share(np.array(found)), len(found))
    return ladder


def deltas_of(policies: Rows, suite: str, seed: int) -> list[Delta]:
    """Each policy against the one it was trained from: differences paired by item."""
    items = {policy: by_item(rows, suite) for policy, rows in policies.items()}
    order = [policy for policy in LADDER if items.get(policy)]
    deltas = []
    for start, policy in itertools.pairwise(order):
        shared = sorted(items[start].keys() & items[policy].keys())
        if shared:
            ours, theirs = (np.array([items[p][item] for item in shared]) for p in (policy, start))
            rng = generator(seed, f"report/{policy}")
            gain = estimate(paired_difference(ours, theirs, RESAMPLES, rng), len(shared))
            deltas.append(Delta(policy=policy, start=start, gain=gain))
    return deltas


def cells_of(policies: Rows) -> list[Cell]:
    """Share of correct samples by suite, difficulty and policy."""
    groups: dict[tuple[str, int, str], list[float]] = {}
    for policy in ladder_order(policies):
        for row in policies[policy]:
            if row.difficulty is not None:
                groups.setdefault((row.suite, row.difficulty, policy), []).append(row.correct)
    return [
        Cell(suite=suite, difficulty=difficulty, policy=policy, value=fmean(found), n=len(found))
        for (suite, difficulty, policy), found in groups.items()
    ]


KINDS = {"improved": 3, "regressed": 2, "kept": 1, "unsolved": 2}
"""Kind of example -> how many of eight examples are of it."""


def examples_of(policies: Rows, suite: str, wanted: int) -> list[Example]:
    """Items that show what training changed: improved, regressed, kept and unsolved ones.

    Items are taken by id, which is a digest: an arbitrary choice, and always the same.
    """
    firsts = {
        policy: {
            r.item_id: r
            for r in policies[policy]
            if r.suite == suite and r.index == 0 and not r.sensitive
        }
        for policy in ladder_order(policies)
    }
    firsts = {policy: found for policy, found in firsts.items() if found}
    if not firsts:
        return []
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for item in sorted(set.intersection(*(set(found) for found in firsts.values()))):
        kinds[kind_of([found[item].correct >= 0.5 for found in firsts.values()])].append(item)
    chosen = [
        example(why(kind, list(firsts)), item, firsts)
        for kind, share in KINDS.items()
        for item in kinds[kind][: math.ceil(share * wanted / 8)]
    ]
    return chosen[:wanted]


def kind_of(marks: Sequence[bool]) -> str:
    """What an item shows, from whether each policy of the ladder got it right."""
    before, after = marks[-2:] if len(marks) > 1 else (marks[0], marks[0])
    if after and not before:
        return "improved"
    if before and not after:
        return "regressed"
    return "kept" if after else "unsolved"


def why(kind: str, policies: Sequence[str]) -> str:
    """What an item of a kind is an example of, in words."""
    if len(policies) == 1:
        return f"{'Right' if kind == 'kept' else 'Wrong'} with {policies[0]}"
    before, after = policies[-2:]
    return {
        "improved": f"Right with {after}, wrong with {before}",
        "regressed": f"Wrong with {after}, right with {before}",
        "kept": f"Right with {before} and with {after}",
        "unsolved": f"Wrong with {before} and with {after}",
    }[kind]


def example(reason: str, item: str, firsts: Mapping[str, Mapping[str, Sample]]) -> Example:
    """One item with the first sample of every policy."""
    row = next(iter(firsts.values()))[item]
    return Example(
        why=reason,
        suite=row.suite,
        item_id=item,
        prompt=row.prompt,
        answer=row.answer,
        difficulty=row.difficulty,
        answers=[
            Answer(
                policy=policy,
                response=found[item].response,
                correct=found[item].correct,
                truncated=found[item].truncated,
            )
            for policy, found in firsts.items()
        ],
    )
