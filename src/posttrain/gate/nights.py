"""The nights of a gate: what each said, kept in the registry beside the policies.

A night is an MLflow run with the score of every suite and its interval as metrics, so that one
request brings them all. The same scores against the same champion are one night, however often
they are judged.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from posttrain.records import content_id
from posttrain.registry import Evidence, Registry, reachable
from posttrain.shipper import BATCH, legal
from posttrain.statistics import Interval, clustered_share

LAST = 60
"""Nights that are read back, the last ones."""


class Level(BaseModel):
    """The score of one suite with its 95% interval over `n` items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    low: float
    high: float
    n: int


class Night(BaseModel):
    """One judgement. `policy` was judged, `opponent` it met (none: the stand-in), `champion` held
    the place afterwards; digests. `ended` in Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    ended: float
    verdict: str
    promoted: bool
    policy: str
    opponent: str
    champion: str
    scores: dict[str, Level]


def key_of(policy: str, scores: str, against: str) -> str:
    """What makes a night: digests of the policy, of its scores and of those it met."""
    return content_id(policy, scores, against)


def levels(evidence: Evidence) -> dict[str, Level]:
    """The score of every suite whose items all have a finite one."""
    found: dict[str, Interval] = {}
    for suite, items in sorted(evidence.scores.items()):
        values = np.array(list(items.values()))
        if len(values) and np.isfinite(values).all():
            found[suite] = clustered_share(values)
    return {
        suite: Level(value=each.value, low=each.low, high=each.high, n=len(evidence.scores[suite]))
        for suite, each in found.items()
    }


def keep(registry: Registry, night: Night) -> None:
    """Store a night unless it is there; what makes it visible is written last."""
    from mlflow.entities import Metric, RunTag

    with reachable(registry.uri):
        if _search(registry, f"tags.night = '{night.key}'", 1):
            return
        moment = int(night.ended * 1000)
        run = registry.client.create_run(registry.experiment(), run_name="night").info.run_id
        metrics = [
            Metric(legal(f"{part}/{suite}"), float(value), moment, 0)
            for suite, level in night.scores.items()
            for part, value in level.model_dump().items()
        ]
        for start in range(0, len(metrics), BATCH):
            registry.client.log_batch(run, metrics=metrics[start : start + BATCH])
        registry.client.set_terminated(run)
        told = night.model_dump(exclude={"scores", "key"}) | {"model": registry.model}
        tags = [RunTag(name, str(value)) for name, value in told.items()]
        registry.client.log_batch(run, tags=[*tags, RunTag("night", night.key)])


def nights(uri: str, model: str) -> list[Night]:
    """The last nights of a model's gate, in order of time."""
    registry = Registry(uri, model)
    with reachable(uri):
        runs = _search(registry, f"tags.model = '{model}' and tags.night != ''", LAST)
    return sorted(map(_night, runs), key=lambda night: night.ended)


def _search(registry: Registry, wanted: str, most: int) -> list[Any]:
    order = ["attributes.start_time DESC"]
    return list(registry.client.search_runs([registry.experiment()], wanted, 1, most, order))


def _night(run: Any) -> Night:
    tags, metrics = run.data.tags, run.data.metrics
    return Night(
        key=tags["night"],
        ended=float(tags["ended"]),
        verdict=tags["verdict"],
        promoted=tags["promoted"] == "True",
        policy=tags["policy"],
        opponent=tags["opponent"],
        champion=tags["champion"],
        scores={
            name.removeprefix("value/"): _level(metrics, name.removeprefix("value/"))
            for name in sorted(metrics)
            if name.startswith("value/")
        },
    )


def _level(metrics: Mapping[str, float], suite: str) -> Level:
    numbers = {part: metrics.get(f"{part}/{suite}", math.nan) for part in ("value", "low", "high")}
    return Level(**numbers, n=int(metrics.get(f"n/{suite}", 0)))
