"""The table of an arena: what each method gained, against the start and against the baseline.

The unit is the item: for each, the mean over samples and seeds, paired with the same items of the
other side. So an interval says how sure the gain is on items like these for these seeds; the
spread over seeds stands beside it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from posttrain.arena.cells import FAILURE, Cell, record_of
from posttrain.arena.config import Arena
from posttrain.artifacts import read_rows
from posttrain.journal import read_curves
from posttrain.records import Sample
from posttrain.statistics import Array, generator, holm, paired_difference

RESAMPLES = 4000
ENDS = 5
COLLAPSED = 0.2
DRIFTED = 1.5


class Gain(BaseModel):
    """A paired difference in pass@1 with its 95% interval; `p` after Holm over the methods."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float
    p: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


class Row(BaseModel):
    """A method on a ground. `entropy` and `length` are the last steps over the first; `efficiency`
    is the share of the baseline's rollouts after which its own last reward was reached, None if
    it never was; `failures` are what the runs said."""

    model_config = ConfigDict(frozen=True)

    ground: str
    method: str
    seeds: int
    pass_at_1: float
    spread: float
    over_start: Gain
    over_baseline: Gain | None
    rollouts: float
    tokens: float
    seconds: float
    efficiency: float | None
    entropy: float
    length: float
    modes: list[str]
    failures: list[str]


class Played(NamedTuple):
    """A finished cell: correctness by item, reward and drawn rollouts by step, and its cost."""

    correct: dict[str, float]
    rewards: list[float]
    drawn: list[float]
    tokens: float
    seconds: float
    entropy: float
    length: float


def rows(arena: Arena, out: Path) -> list[Row]:
    """A row for each method and ground of which a seed is finished, best first on each ground."""
    made: list[Row] = []
    for ground in arena.grounds:
        start = correctness(out / Cell(ground).folder / "benchmark_sft" / "scores")
        played = {name: finished(arena, out, ground, name) for name in arena.meeting(ground)}
        baseline = played[arena.baseline]
        found = [
            row(arena, out, Cell(ground, name), start, runs, baseline)
            for name, runs in played.items()
            if runs
        ]
        made += sorted(adjusted(found), key=lambda each: -each.pass_at_1)
    return made


def row(
    arena: Arena,
    out: Path,
    cell: Cell,
    start: dict[str, float],
    runs: dict[int, Played],
    baseline: dict[int, Played],
) -> Row:
    """One method on one ground; compared with the baseline on the seeds that both have."""
    shared = sorted(runs.keys() & baseline.keys())
    over = None
    if cell.method != arena.baseline and shared:
        over = gain(mean_of([runs[s] for s in shared]), mean_of([baseline[s] for s in shared]))
    mean = mean_of(list(runs.values()))
    scores = [fmean(each.correct.values()) for each in runs.values()]
    reached = [reach(runs[s], baseline[s]) for s in shared]
    entropy = fmean(each.entropy for each in runs.values())
    length = fmean(each.length for each in runs.values())
    return Row(
        ground=cell.ground,
        method=cell.method,
        seeds=len(runs),
        pass_at_1=fmean(scores),
        spread=pstdev(scores),
        over_start=gain(mean, start),
        over_baseline=over,
        rollouts=fmean(sum(each.drawn) for each in runs.values()),
        tokens=fmean(each.tokens for each in runs.values()),
        seconds=fmean(each.seconds for each in runs.values()),
        efficiency=None if None in reached or not reached else fmean(r for r in reached if r),
        entropy=entropy,
        length=length,
        modes=[*modes(entropy, length)],
        failures=failures(arena, out, cell),
    )


def finished(arena: Arena, out: Path, ground: str, method: str) -> dict[int, Played]:
    """The cells of a method that were played to their end, by seed."""
    found = {}
    for seed in arena.seeds:
        cell = Cell(ground, method, seed)
        if record_of(out, cell, "benchmark_rl").is_file():
            found[seed] = read_cell(out, cell)
    return found


def read_cell(out: Path, cell: Cell) -> Played:
    """What the records and curves of a cell say."""
    record = json.loads(record_of(out, cell, "rl").read_text(encoding="utf-8"))
    curves: dict[str, list[float]] = {}
    for point in read_curves(out / cell.folder / "stages/rl/curves.jsonl"):
        curves.setdefault(point.name, []).append(point.value)
    return Played(
        correct=correctness(out / cell.folder / "benchmark_rl" / "scores"),
        rewards=curves["reward/mean"],
        drawn=curves["generated"],
        tokens=float(record["report"]["tokens"]),
        seconds=float(record["seconds"]),
        entropy=last_over_first(curves["entropy"]),
        length=last_over_first(curves["response/length"]),
    )


def correctness(scores: Path) -> dict[str, float]:
    """Mean correctness of each item's samples."""
    samples: dict[str, list[float]] = {}
    for sample in read_rows(scores, Sample):
        samples.setdefault(sample.item_id, []).append(sample.correct)
    return {item: fmean(values) for item, values in sorted(samples.items())}


def mean_of(runs: Sequence[Played]) -> dict[str, float]:
    """Correctness of each item, averaged over runs."""
    return {item: fmean(run.correct[item] for run in runs) for item in runs[0].correct}


def gain(ours: dict[str, float], theirs: dict[str, float]) -> Gain:
    """The paired difference over items."""
    found = paired_difference(
        array(ours), array({item: theirs[item] for item in ours}), RESAMPLES, generator(0, "arena")
    )
    return Gain(value=found.value, low=found.low, high=found.high, p=found.p)


def array(values: dict[str, float]) -> Array:
    """The values in their order."""
    return np.array(list(values.values()), dtype=np.float64)


def adjusted(found: list[Row]) -> list[Row]:
    """The rows with p-values that hold the family-wise error over the methods."""
    compared = [each for each in found if each.over_baseline]
    values = holm([each.over_baseline.p for each in compared if each.over_baseline])
    by_method = dict(zip((each.method for each in compared), values, strict=True))
    return [
        each.model_copy(
            update={
                "over_baseline": each.over_baseline
                and each.over_baseline.model_copy(update={"p": by_method[each.method]})
            }
        )
        for each in found
    ]


def reach(ours: Played, baseline: Played) -> float | None:
    """Rollouts until the mean reward of five steps is the baseline's last, over the baseline's."""
    wanted = fmean(baseline.rewards[-ENDS:])
    for at in range(len(ours.rewards)):
        if fmean(ours.rewards[max(0, at - ENDS + 1) : at + 1]) >= wanted:
            return sum(ours.drawn[: at + 1]) / max(1.0, sum(baseline.drawn))
    return None


def last_over_first(values: Sequence[float]) -> float:
    """Mean of the last five over the mean of the first five."""
    first = fmean(values[:ENDS])
    return fmean(values[-ENDS:]) / first if first else 1.0


def modes(entropy: float, length: float) -> list[str]:
    """What is known to go wrong, and did."""
    return [
        name
        for name, there in (
            ("entropy collapse", entropy < COLLAPSED),
            ("length drift", length > DRIFTED or length < 1 / DRIFTED),
        )
        if there
    ]


def failures(arena: Arena, out: Path, cell: Cell) -> list[str]:
    """What stopped the seeds that were not played to their end."""
    found = []
    for seed in arena.seeds:
        path = out / Cell(cell.ground, cell.method, seed).folder / FAILURE
        if path.is_file():
            faults = json.loads(path.read_text(encoding="utf-8"))["faults"]
            found.append(f"seed {seed}: {faults[0]}")
    return found
