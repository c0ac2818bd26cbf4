"""What the body of a Kubeflow component calls: the command line, then the UI's outputs.

Under `posttrain run` the same body runs in a process of its own; then what the stage prints
goes to its own log and a failure leaves its exit code for the launcher.
"""

import json
import math
import os
import select
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from posttrain.artifacts import write_json
from posttrain.attempts import Ledger
from posttrain.cli import main

FAILURE = "failure.json"


class Artifact(Protocol):
    """What this module needs of a KFP artifact."""

    path: str


class Scalars(Artifact, Protocol):
    """What this module needs of KFP's `Metrics`."""

    def log_metric(self, metric: str, value: float) -> None: ...


class Confusion(Artifact, Protocol):
    """What this module needs of KFP's `ClassificationMetrics`."""

    def log_confusion_matrix(self, categories: list[str], matrix: list[list[int]]) -> None: ...


Given = Artifact | str | Sequence[Artifact | None] | None


def command(
    stage: str,
    *,
    task: str,
    recipe: str,
    seed: int | str,
    overrides: str,
    budget: float | str = 0.0,
    **given: Given,
) -> list[str]:
    """The command line of a task. Of the ports and options, those not given are left out."""
    argv = [stage, "--task", task, "--recipe", recipe, "--seed", str(seed)]
    argv += ["--overrides", overrides, "--run-budget", str(budget)]
    for name, value in given.items():
        several: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        values = [v if isinstance(v, str) else str(v.path) for v in several if v]
        argv += [f"--{name.replace('_', '-')}", *values] if values else []
    return argv


def run_component(
    stage: str,
    metrics: Scalars,
    *,
    task: str,
    recipe: str,
    seed: int,
    overrides: str,
    budget: float = 0.0,
    **given: Given,
) -> dict[str, Any]:
    """Run a stage through the command line and return its report.

    Exits with the stage's own code when it fails (2 configuration, 3 data, 75 transient).
    """
    argv = command(
        stage,
        task=task,
        recipe=recipe,
        seed=int(seed),
        overrides=overrides,
        budget=budget,
        **given,
    )
    argv += ["--metrics", metrics.path]
    if "POSTTRAIN_LOGS" in os.environ:
        code = run_logged(task, argv)
    elif folder := shared_run():
        options = {key: value for key, value in given.items() if value and isinstance(value, str)}
        ledger = Ledger(folder, task, options)
        code = ledger.attempt(lambda: main([*argv, "--run-folder", str(folder)]))
    else:
        code = main(argv)
    if code:
        raise SystemExit(code)
    report: dict[str, Any] = json.loads(Path(metrics.path).read_text(encoding="utf-8"))
    for name, value in scalars(report):
        metrics.log_metric(name, value)
    return report


def shared_run() -> Path | None:
    """In a cluster, the run's records stand beside the store that all its pods share."""
    run, store = os.environ.get("POSTTRAIN_RUN_ID"), os.environ.get("POSTTRAIN_STORE")
    return Path(store).parent / "runs" / run if run and store else None


def run_logged(task: str, argv: list[str]) -> int:
    """Run with output in a log of the task's own; on failure tell the launcher the exit code.

    Without its launcher a task would go on unseen, so it stops when the launcher is gone: the
    pipe that was its standard output then has no reader.
    """
    logs = Path(os.environ["POSTTRAIN_LOGS"])
    launcher = os.dup(1)
    with (logs / f"{task}.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    threading.Thread(target=stop_without, args=(launcher,), daemon=True).start()
    code = 1
    try:
        code = main(argv)
    finally:
        sys.stdout.flush()
        if code:
            write_json(logs / FAILURE, {"task": task, "code": code})
    return code


def stop_without(pipe: int) -> None:
    """End this process, as if killed, once nobody reads the pipe."""
    watch = select.poll()
    watch.register(pipe, 0)
    watch.poll()
    os._exit(75)


def scalars(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers of a report, nested keys joined by `/`; KFP cannot hold others."""
    for key, value in report.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{key}/")
        elif isinstance(value, bool | int | float) and math.isfinite(value):
            yield f"{prefix}{key}", float(value)


def show(folder: Artifact, name: str, target: Artifact) -> None:
    """Copy a page or note out of a stage's output to where the UI shows it."""
    shutil.copyfile(Path(folder.path) / name, target.path)


def show_pairs(report: Mapping[str, Any], pairs: Confusion) -> None:
    """Show how often the judge prefers the better response of a held-out pair."""
    held_out = report["panel"]["held_out"]
    right = round(held_out["accuracy"] * held_out["pairs"])
    wrong = held_out["pairs"] - right
    pairs.log_confusion_matrix(["better", "worse"], [[right, wrong], [wrong, right]])
