"""`summary.json`: the numbers of a run that a program or a terminal wants."""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posttrain.report.facts import Estimate, Fact, Facts
from posttrain.report.times import StageRecord, Times, times_of

CURVE_METRIC = re.compile(r"([a-z_0-9]+?)(?:@|_at_)(\d+)")


class CurvePoint(Fact):
    """Best-of-N at one N: how often some, the most voted, the best judged answer is right, and
    what the other selectors choose, by name."""

    n: int
    pass_at_n: Estimate | None = None
    majority: Estimate | None = None
    judge: Estimate | None = None
    selectors: dict[str, Estimate] = {}

    def methods(self) -> dict[str, Estimate]:
        """Every estimate by the name that its scores have."""
        own = {"pass": self.pass_at_n, "majority": self.majority, "judge": self.judge}
        return {name: e for name, e in own.items() if e is not None} | self.selectors


class Metrics(Fact):
    """The numbers that decide: shares in [0, 1] with 95% intervals."""

    suite: str
    pass_at_1: dict[str, Estimate]
    gains: dict[str, Estimate]
    reward_model_accuracy: float | None
    reward_model: Estimate | None
    best_of_n: list[CurvePoint]
    suites: dict[str, dict[str, Estimate]]
    gate: dict[str, Any]


class StageTime(Fact):
    """A task and, once the run is over, its cost in seconds."""

    stage: str
    seconds: float | None = None
    overhead_seconds: float | None = None
    cached: bool | None = None
    reason: str | None = None


class Line(Fact):
    """Where one artifact comes from."""

    task: str
    port: str
    record: str
    rows: int | None
    digest: str
    inputs: dict[str, str]
    seed: int
    git: str


class Summary(Fact):
    """The whole file. `wall_seconds`, `overhead_seconds` and `report` are known after the run."""

    title: str
    metrics: Metrics
    stages: dict[str, StageTime]
    lineage: list[Line]
    wall_seconds: float | None = None
    overhead_seconds: float | None = None
    report: str | None = None

    @classmethod
    def read(cls, path: Path) -> "Summary":
        """Read a `summary.json`."""
        return cls.model_validate_json(path.read_bytes())


def summarise(facts: Facts) -> Summary:
    """The summary of the facts, without times."""
    judge = judge_accuracy(facts)
    return Summary(
        title=facts.title,
        metrics=Metrics(
            suite=facts.suite,
            pass_at_1=facts.ladder,
            gains={f"{d.policy}_over_{d.start}": d.gain for d in facts.deltas},
            reward_model_accuracy=judge.value if judge else None,
            reward_model=judge,
            best_of_n=best_of_n_curve(facts),
            suites=suite_scores(facts),
            gate=facts.verdict,
        ),
        stages={a.task: StageTime(stage=a.stage) for a in facts.artifacts},
        lineage=[
            Line.model_validate(a.model_dump(include=set(Line.model_fields)))
            for a in facts.artifacts
        ],
    )


def judge_accuracy(facts: Facts) -> Estimate | None:
    """How often the judge ranks a held-out pair right, from its panel."""
    told = facts.panel.get("held_out")
    if not isinstance(told, Mapping) or "accuracy" not in told:
        return None
    nan = math.nan
    return Estimate(
        value=told["accuracy"],
        low=told.get("low", nan),
        high=told.get("high", nan),
        n=told.get("pairs", 0),
    )


def best_of_n_curve(facts: Facts) -> list[CurvePoint]:
    """The curve of the best-of-N scores, by N."""
    found: dict[int, dict[str, Estimate]] = {}
    for told in facts.scores:
        match = CURVE_METRIC.fullmatch(told.score.metric)
        if match and told.policy == "best_of_n":
            score = told.score
            found.setdefault(int(match[2]), {})[match[1]] = Estimate(
                value=score.value, low=score.low, high=score.high, n=score.n
            )
    return [
        CurvePoint(
            n=n,
            pass_at_n=found[n].pop("pass", None),
            majority=found[n].pop("majority", None),
            judge=found[n].pop("judge", None),
            selectors=found[n],
        )
        for n in sorted(found)
    ]


def suite_scores(facts: Facts) -> dict[str, dict[str, Estimate]]:
    """Policy -> suite -> its first score there."""
    suites: dict[str, dict[str, Estimate]] = {}
    for told in facts.scores:
        if told.policy != "best_of_n":
            score = told.score
            suites.setdefault(told.policy, {}).setdefault(
                score.suite,
                Estimate(value=score.value, low=score.low, high=score.high, n=score.n),
            )
    return suites


def add_timing(
    summary: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    wall_seconds: float | None = None,
) -> dict[str, Any]:
    """`summary.json` with seconds, orchestration overhead and cache hits of every stage."""
    times = times_of(map(StageRecord.model_validate, records), wall_seconds)
    return with_times(Summary.model_validate(summary), times).model_dump(mode="json")


def with_times(summary: Summary, times: Times) -> Summary:
    """The summary with the given times; tasks that left no artifact are added."""
    stages: Mapping[str, StageTime] = {
        span.task: StageTime(
            stage=span.stage,
            seconds=span.seconds,
            overhead_seconds=span.overhead_seconds,
            cached=span.cached,
            reason=span.reason,
        )
        for span in times.spans
    }
    return summary.model_copy(
        update={
            "stages": {**summary.stages, **stages},
            "wall_seconds": times.wall_seconds,
            "overhead_seconds": times.overhead_seconds,
        }
    )


def finite(value: float | None) -> bool:
    """Whether there is a number to show."""
    return value is not None and math.isfinite(value)
