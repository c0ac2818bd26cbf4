"""How often the gate errs, and whether it sees what it says it could: simulated nights.

`python benchmarks/gate.py` draws nights of five suites and puts each through `compare` and
`decide`, the code that judges a real night. Every item has a chance of its own to be answered
right; champion and challenger share part of their luck, as two policies of one family do; of one
suite four items share a prompt. Shares stand with exact binomial intervals (Clopper and Pearson).
A month is 30 nights of challengers that are as good as the champion, which was scored once.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from posttrain.gate.comparison import Answered, Comparison, Strictness, compare
from posttrain.gate.verdict import Outcome, Rule, decide
from posttrain.registry import Evidence

PRIMARY = "primary"


class Suite(NamedTuple):
    """`prompts` prompts with `each` items."""

    prompts: int
    each: int = 1


SUITES = {
    PRIMARY: Suite(2000),
    "large": Suite(1319),
    "middle": Suite(500),
    "small": Suite(150),
    "clustered": Suite(150, 4),
}
SHARED_LUCK = 0.7
"""Chance that both policies are equally lucky with an item: one in eleven answers differs."""
SHARED_PROMPT = 0.5
"""Chance that an item goes as the others of its prompt."""


class Night(NamedTuple):
    """What one night says under one rule."""

    outcome: Outcome
    suites: Mapping[str, Comparison]


class World:
    """Items with their chances, and the luck of a champion that was scored once."""

    def __init__(self, suites: Mapping[str, Suite], rng: np.random.Generator) -> None:
        self.suites, self.rng = suites, rng
        self.ids = {n: [f"{i:05}" for i in range(s.prompts * s.each)] for n, s in suites.items()}
        self.prompts = {
            name: {item: str(i // suite.each) for i, item in enumerate(self.ids[name])}
            for name, suite in suites.items()
        }
        self.chance = {
            name: np.repeat(rng.beta(0.9, 0.6, suite.prompts), suite.each)
            for name, suite in suites.items()
        }
        self.luck = {name: self._luck(suite) for name, suite in suites.items()}
        self.champion = self._answered(self.luck, {})

    def challenger(self, losses: Mapping[str, float]) -> Answered:
        """A policy with chances as the champion's, or lower by so much on average in a suite."""
        luck = {}
        for name, suite in self.suites.items():
            same = np.repeat(self.rng.random(suite.prompts) < SHARED_LUCK, suite.each)
            luck[name] = np.where(same, self.luck[name], self._luck(suite))
        return self._answered(luck, losses)

    def _luck(self, suite: Suite) -> np.ndarray:
        own = self.rng.random(suite.prompts * suite.each)
        shared = np.repeat(self.rng.random(suite.prompts), suite.each)
        return np.where(self.rng.random(len(own)) < SHARED_PROMPT, shared, own)

    def _answered(self, luck: Mapping[str, np.ndarray], losses: Mapping[str, float]) -> Answered:
        scores = {}
        for name, chance in self.chance.items():
            kept = 1 - losses.get(name, 0.0) / chance.mean()
            right = (luck[name] < chance * kept).astype(float)
            scores[name] = dict(zip(self.ids[name], right.tolist(), strict=True))
        return Answered(Evidence(scores=scores), self.prompts)


def judge(
    world: World,
    challenger: Answered,
    strictness: Strictness,
    seed: int,
    rules: Sequence[tuple[Rule, int]] = (("better", 1),),
) -> list[Night]:
    """A night by the gate's own code, under each rule and number of looks."""
    found = compare(challenger, world.champion.evidence, world.suites, strictness, seed)
    by_name = {c.suite: c for c in found}
    return [
        Night(
            decide(
                found,
                [],
                primary=[next(iter(world.suites))],
                rule=rule,
                strictness=strictness._replace(looks=looks),
                floors={},
            )[0],
            by_name,
        )
        for rule, looks in rules
    ]


def nights(
    suites: Mapping[str, Suite],
    losses: Mapping[str, float],
    count: int,
    seed: int,
    rule: Rule = "better",
    **strictness: float,
) -> list[Night]:
    """`count` nights, each in a world of its own."""
    rng = np.random.default_rng([seed, count])
    strict = Strictness(**strictness)  # type: ignore[arg-type]
    found = []
    for number in range(count):
        world = World(suites, rng)
        found += judge(world, world.challenger(losses), strict, number, [(rule, strict.looks)])
    return found


def share(hits: int, n: int) -> tuple[float, float, float]:
    """A share with its exact 95% interval."""
    low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, n - hits)) if hits < n else 1.0
    return hits / n, low, high


def row(what: str, stated: str, n: int, hits: int) -> str:
    """A line of the table."""
    value, low, high = share(hits, n)
    return f"| {what} | {stated} | {n} | {value:.3f} [{low:.3f}, {high:.3f}] |"


def of(found: Sequence[Night], outcome: Outcome) -> int:
    """How many nights ended so."""
    return sum(night.outcome == outcome for night in found)


def no_change(count: int, seed: int) -> list[str]:
    """False fails and false promotions where nothing changed."""
    lines = []
    for name, suites in {
        "five suites": SUITES,
        "one suite of 150": {"small": SUITES["small"]},
        "one suite, 4 items a prompt": {"clustered": SUITES["clustered"]},
    }.items():
        found = nights(suites, {}, count, seed)
        lines += [
            row(f"no change, {name}: fails", "at most 0.05", count, of(found, "fail")),
            row(f"no change, {name}: promotes", "at most 0.05", count, of(found, "pass")),
            row(
                f"no change, {name}: either",
                "at most 0.05",
                count,
                count - of(found, "investigate"),
            ),
        ]
    found = nights(SUITES, {PRIMARY: 0.02}, count, seed, "non_inferior")
    lines.append(
        row(
            "non_inferior, a loss of the margin: promotes",
            "at most 0.025",
            count,
            of(found, "pass"),
        )
    )
    return lines


def regression(count: int, seed: int) -> list[str]:
    """Fails where a loss was planted, 3 points and as much as the gate says it can see."""
    lines = []
    for name, losses in {
        "the primary suite": {PRIMARY: 0.03},
        "every suite": dict.fromkeys(SUITES, 0.03),
    }.items():
        found = nights(SUITES, losses, count, seed)
        seen = np.median([night.suites[PRIMARY].detectable for night in found])
        stated = f"detectable {100 * seen:.1f} points, so at least 0.8"
        lines.append(row(f"3 points lost in {name}: fails", stated, count, of(found, "fail")))
    quiet = nights(SUITES, {}, 50, seed)
    for name in SUITES:
        seen = float(np.median([night.suites[name].detectable for night in quiet]))
        found = nights(SUITES, {name: seen}, count, seed + 1)
        what = f"{100 * seen:.1f} points lost in `{name}`: fails"
        lines.append(row(what, "its detectable loss, so at least 0.8", count, of(found, "fail")))
    return lines


def months(count: int, seed: int, length: int = 30) -> list[str]:
    """Some night of a month promotes, or fails, though nothing changed."""
    rng = np.random.default_rng(seed)
    looks = (1, length)
    promoted, failed = dict.fromkeys(looks, 0), 0
    strict = Strictness(looks=length)
    for month in range(count):
        world = World(SUITES, rng)
        said = [
            judge(
                world,
                world.challenger({}),
                strict,
                month * length + night,
                [("better", each) for each in looks],
            )
            for night in range(length)
        ]
        for place, each in enumerate(looks):
            promoted[each] += any(night[place].outcome == "pass" for night in said)
        failed += any(night[0].outcome == "fail" for night in said)
    return [
        row("a month, looks 1: some night promotes", "no statement", count, promoted[1]),
        row(
            f"a month, looks {length}: some night promotes", "at most 0.05", count, promoted[length]
        ),
        row("a month: some night fails", "no statement", count, failed),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=1000, help="of each kind")
    parser.add_argument("--months", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("| nights | stated | n | measured, exact 95% interval |\n|---|---|---|---|")
    parts: list[tuple[Callable[[int, int], list[str]], int]] = [
        (no_change, given.nights),
        (regression, given.nights),
        (months, given.months),
    ]
    began = time.monotonic()
    for part, count in parts:
        print("\n".join(part(count, given.seed)), flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
