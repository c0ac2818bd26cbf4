"""Read the artifacts of a run into `Facts`. What is absent stays empty: a page of half a run is
better than none."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.artifacts import (
    CURVES,
    JUDGE,
    POLICY,
    ROWS,
    SCORES,
    Manifest,
    read_manifest,
    read_rows,
)
from posttrain.errors import PosttrainError
from posttrain.journal import read_curves
from posttrain.records import Sample, Score
from posttrain.report.compare import LADDER, cells_of, deltas_of, examples_of, ladder_of, widest
from posttrain.report.facts import Artifact, Curve, Facts, Rung, TaskScore
from posttrain.stages import load_stage

CLOCK = re.compile(
    r"(^|[/_.])(seconds?|secs?|time|times|runtime|duration|elapsed|wall|throughput|per_second"
    r"|eta|memory|rss)([/_.]|$)"
)
"""Names of numbers that differ between two runs with one seed; the page leaves them out."""
MAX_POINTS = 240
PLACES = ("_uri", "_folder")


class Found(NamedTuple):
    """An artifact folder and its manifest."""

    folder: Path
    manifest: Manifest


def gather(inputs: Sequence[Path], *, title: str, suite: str, examples: int, seed: int) -> Facts:
    """Read every artifact folder. The order of `inputs` does not matter."""
    found = in_order([Found(folder, read_manifest(folder)) for folder in inputs])
    scores = {policy_of(f.manifest): f for f in found if f.manifest.record == SCORES}
    table = [
        TaskScore(policy=policy, score=score)
        for policy, f in scores.items()
        if (f.folder / "scores.jsonl").is_file()
        for score in read_rows(f.folder, Score, "scores.jsonl")
    ]
    rows = {
        policy: list(read_rows(f.folder, Sample))
        for policy, f in scores.items()
        if (f.folder / ROWS).is_file()
    }
    policies = {p: rows[p] for p in rows if scores[p].manifest.stage == "benchmark"}
    suite = suite or widest(policies)
    return Facts(
        title=title,
        suite=suite,
        artifacts=[artifact(f.manifest) for f in found],
        curves=curves_of(found),
        scores=table,
        rungs=[Rung(policy=p, found=e) for p, e in ladder_of(policies, table, suite).items()],
        deltas=deltas_of(policies, suite, seed),
        cells=cells_of(policies),
        examples=examples_of(policies, suite, examples),
        panel=panel_of(found),
        verdict=read_object(found, "gate", "verdict.json"),
        tokens=tokens_of(found, {scores[p].manifest.task: s for p, s in rows.items()}),
    )


def policy_of(manifest: Manifest) -> str:
    """Whose scores these are: `benchmark_sft` -> `sft`; a graph with one benchmark -> `policy`."""
    if manifest.stage != "benchmark":
        return manifest.task
    return manifest.task.removeprefix("benchmark").strip("_") or "policy"


def in_order(found: Iterable[Found]) -> list[Found]:
    """Artifacts by distance from the sources of the graph, the ladder's tasks in its order."""
    found = list({(f.manifest.task, f.manifest.port): f for f in found}.values())
    makers = {f.manifest.digest: f.manifest.task for f in reversed(found)}
    needs: dict[str, set[str]] = {}
    for f in found:
        sources = {makers[d] for d in f.manifest.inputs.values() if d in makers}
        needs.setdefault(f.manifest.task, set()).update(sources - {f.manifest.task})
    depth = depths(needs)
    rank = {name: i for i, name in enumerate(LADDER)}
    return sorted(
        found,
        key=lambda f: (
            depth[f.manifest.task],
            rank.get(policy_of(f.manifest), len(rank)),
            f.manifest.task,
            f.manifest.port,
        ),
    )


def depths(needs: Mapping[str, set[str]]) -> dict[str, int]:
    """The longest way from a source to each task; a circle (equal digests) is cut."""
    depth: dict[str, int] = {}

    def visit(task: str, above: frozenset[str]) -> int:
        if task not in depth:
            sources = [visit(s, above | {task}) for s in sorted(needs[task]) if s not in above]
            depth[task] = 1 + max(sources, default=-1)
        return depth[task]

    for task in sorted(needs):
        visit(task, frozenset({task}))
    return depth


def artifact(manifest: Manifest) -> Artifact:
    """What the page keeps of a manifest: all that does not depend on the clock."""
    return Artifact(
        task=manifest.task,
        stage=manifest.stage,
        port=manifest.port,
        record=manifest.record,
        rows=manifest.rows,
        digest=manifest.digest,
        inputs=manifest.inputs,
        seed=manifest.seed,
        git=manifest.git,
        departures=departures(manifest.stage, manifest.config),
        report=timeless(manifest.report),
    )


def departures(stage: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not the stage's defaults; all of them if the stage is unknown here.

    Where a service or a folder is to be found is left out: it changes no result.
    """
    try:
        fields = load_stage(stage).config.model_fields
    except (PosttrainError, ImportError):
        return dict(config)
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in fields.items()
    }
    plain = json.loads(json.dumps(defaults, default=_plain))
    return {
        name: value
        for name, value in config.items()
        if plain.get(name) != value and name != "seed" and not name.endswith(PLACES)
    }


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def timeless(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without its clock readings, at any depth."""
    return {
        key: timeless(value) if isinstance(value, Mapping) else value
        for key, value in report.items()
        if not CLOCK.search(key)
    }


def curves_of(found: Iterable[Found]) -> list[Curve]:
    """Per training and metric the curve, if it has two points; at most `MAX_POINTS` are kept."""
    models = [f for f in found if f.manifest.record in (POLICY, JUDGE)]
    folders = {f.manifest.task: f.folder for f in reversed(models)}
    curves = []
    for task in reversed(folders):
        lines: dict[str, list[tuple[int, float]]] = {}
        for point in read_curves(folders[task] / CURVES):
            if not CLOCK.search(point.name):
                lines.setdefault(point.name, []).append((point.step, point.value))
        for name in sorted(lines):
            points = thinned(sorted(lines[name]))
            if len(points) < 2:
                continue
            values = [v if math.isfinite(v) else None for _, v in points]
            curves.append(Curve(task=task, name=name, steps=[s for s, _ in points], values=values))
    return curves


def thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Every k-th point counted from the last, which is always kept."""
    stride = -(-len(points) // MAX_POINTS)
    return points[::-1][:: max(1, stride)][::-1]


def read_object(found: Iterable[Found], stage: str, name: str) -> dict[str, Any]:
    """A JSON object that a stage left in one of its folders; empty if there is none."""
    for f in found:
        path = f.folder / name
        if f.manifest.stage == stage and path.is_file():
            value = json.loads(path.read_text(encoding="utf-8"))
            return timeless(value) if isinstance(value, dict) else {}
    return {}


def panel_of(found: Sequence[Found]) -> dict[str, Any]:
    """The judge's panel: the file in its folder, else what its report says."""
    reports = [f.manifest.report for f in found if f.manifest.stage == "reward_model"]
    told: dict[str, Any] = next(
        (r["panel"] for r in reports if isinstance(r.get("panel"), dict)), {}
    )
    return read_object(found, "reward_model", "panel.json") or timeless(told)


def tokens_of(found: Iterable[Found], samples: Mapping[str, Iterable[Sample]]) -> dict[str, int]:
    """Tokens of each task: counted over its samples, else the `tokens` of its report."""
    tokens = {task: sum(s.tokens for s in rows) for task, rows in samples.items()}
    for f in found:
        counted = [
            v
            for k, v in f.manifest.report.items()
            if re.fullmatch(r"(\w+_)?tokens", k)
            and isinstance(v, int)
            and not k.startswith(("max", "min", "mean"))
        ]
        if counted:
            tokens.setdefault(f.manifest.task, sum(counted))
    return tokens
