"""Where the time of a run went: the work of each stage, and what orchestration added to it."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from posttrain.artifacts import Manifest
from posttrain.report.facts import Fact


class StageRecord(BaseModel):
    """What the executor records of one task; Unix seconds. `seconds` is what the work took when
    it was last done, so a cached task keeps those of the run that did it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: str
    stage: str
    cached: bool
    reason: str
    started: float
    ended: float
    seconds: float
    report: Mapping[str, Any] = {}
    cost: Mapping[str, float] = {}


class Span(Fact):
    """One task in time. `begin` counts from the run's start; `gap_seconds` passed before it while
    no task ran; `seconds` is work done in this run; `overhead_seconds` is the gap and what the
    task's process spent outside the work, `None` if unknown; `generation_seconds`: of the work,
    what its report says went into generation; `cost`: the account of all its attempts."""

    task: str
    stage: str
    begin: float
    gap_seconds: float
    seconds: float
    overhead_seconds: float | None
    cached: bool
    reason: str
    generation_seconds: float | None = None
    cost: dict[str, float] = {}


class Times(Fact):
    """All tasks by start. The whole is `None` when only manifests, not records, are known."""

    spans: list[Span]
    wall_seconds: float | None
    overhead_seconds: float | None

    def span(self, task: str) -> Span | None:
        """The span of a task, if it ran."""
        return next((span for span in self.spans if span.task == task), None)


def times_of(records: Iterable[StageRecord], wall_seconds: float | None = None) -> Times:
    """Split the time of a run into work and overhead.

    Overhead of a task = the gap since the end of every task before it (start of the interpreter
    included) + what its own process spent outside the work (verifying, hashing, publishing).
    `wall_seconds` is what the launcher measured, its own start and end included.
    """
    ordered = sorted(records, key=lambda r: (r.started, r.task))
    zero = min((r.started for r in ordered), default=0.0)
    free, spans = zero, []
    for record in ordered:
        inside = max(0.0, record.ended - record.started)
        work = 0.0 if record.cached else min(record.seconds, inside)
        gap = max(0.0, record.started - free)
        spans.append(
            Span(
                task=record.task,
                stage=record.stage,
                begin=round(record.started - zero, 3),
                gap_seconds=round(gap, 3),
                seconds=round(work, 3),
                overhead_seconds=round(gap + inside - work, 3),
                cached=record.cached,
                reason=record.reason,
                generation_seconds=generation(record.report),
                cost=dict(record.cost),
            )
        )
        free = max(free, record.ended)
    wall = free - zero if wall_seconds is None else wall_seconds
    work_seconds = sum(span.seconds for span in spans)
    return Times(
        spans=spans,
        wall_seconds=round(wall, 3),
        overhead_seconds=round(max(0.0, wall - work_seconds), 3),
    )


def times_of_manifests(manifests: Iterable[Manifest]) -> Times:
    """What manifests alone tell: seconds of work. On a cluster nobody keeps one run folder."""
    tasks = {m.task: m for m in sorted(manifests, key=lambda m: (m.started, m.task))}
    zero = min((m.started for m in tasks.values()), default=0.0)
    spans = [
        Span(
            task=m.task,
            stage=m.stage,
            begin=round(m.started - zero, 3),
            gap_seconds=0.0,
            seconds=round(m.seconds, 3),
            overhead_seconds=None,
            cached=False,
            reason="",
            generation_seconds=generation(m.report),
        )
        for m in tasks.values()
    ]
    return Times(spans=spans, wall_seconds=None, overhead_seconds=None)


def generation(report: Mapping[str, Any]) -> float | None:
    """The seconds of generation that a report tells, if it tells any."""
    seconds = report.get("generation_seconds")
    return round(seconds, 3) if isinstance(seconds, float) and seconds > 0 else None
