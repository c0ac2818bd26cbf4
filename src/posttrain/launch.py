"""Run the KFP graph on this machine through `kfp.local`: the same tasks, one process or, with an
image, one container each.

What KFP prints goes to `kfp.log` of the run folder, what a task prints to `logs/TASK.log`;
a person sees one line a task, and on a terminal the newest line of the one at work.
"""

import contextlib
import importlib
import json
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from posttrain.containers import registry_folders, shut_in
from posttrain.errors import ConfigError, Fault, accepted
from posttrain.execution import summary_line

FAILURE = "failure.json"
POLL_SECONDS = 0.2
SHOWN_ON_FAILURE = 20


def launch(
    recipe: str,
    run_folder: Path,
    seed: int,
    overrides: str,
    store: Path,
    pipeline: str = "posttraining",
    image: str = "",
) -> int:
    """Run every task of a graph; return 0, or the exit code of the task that failed.

    With an image each task is a container of it, shut in as `posttrain.containers` says.

    Inputs and outputs of the run live under `run_folder/kfp`, which each launch empties first:
    the store keeps what is worth keeping.
    """
    run_folder = run_folder.absolute()
    graph = graph_named(pipeline)
    logs = run_folder / "logs"
    for folder in (run_folder / "kfp", logs):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    settings = {
        "POSTTRAIN_STORE": str(store.absolute()),
        "POSTTRAIN_RUN": str(run_folder),
        "POSTTRAIN_LOGS": str(logs),
        "POSTTRAIN_TRACKING": "defer",
        "OMP_WAIT_POLICY": "passive",
    }
    arguments = {"recipe": recipe, "seed": seed, "overrides": overrides}
    shared = [store.absolute(), *(registry_folders(recipe, overrides, pipeline) if image else ())]
    began = time.time()
    with (
        environment(settings),
        runner_of(image, run_folder, shared, settings) as runner,
        shown(run_folder, sys.stdout),
    ):
        error = run_quietly(graph, arguments, run_folder, runner, image)
        # KFP takes a container that is gone before it asks for the exit code for a success.
        error = error or unfinished(run_folder, began)
    return told(error, run_folder) if error else 0


@contextlib.contextmanager
def runner_of(
    image: str, run_folder: Path, shared: Sequence[Path], settings: Mapping[str, str]
) -> Iterator[Any]:
    """KFP's runner: processes of this environment, or containers of an image."""
    from kfp import local

    if not image:
        yield local.SubprocessRunner(use_venv=False)
        return
    with shut_in(image, run_folder, shared, settings) as runner:
        yield runner


def graph_named(pipeline: str) -> Any:
    """Import a pipeline of the repository that the current directory belongs to."""
    here = Path.cwd()
    for root in (here, *here.parents):
        if (root / "pipelines" / f"{pipeline}.py").is_file():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return getattr(importlib.import_module(f"pipelines.{pipeline}"), pipeline)
    known = [p.stem for p in (here / "pipelines").glob("*.py")]
    raise ConfigError(
        Fault(
            f"no graph `{pipeline}`",
            str(here / "pipelines"),
            "graphs are part of the repository, not of the installed package",
            accepted(pipeline, known) if known else "run inside a checkout of posttrain",
        )
    )


def run_quietly(
    graph: Any, arguments: Mapping[str, Any], run_folder: Path, runner: Any, image: str
) -> str:
    """Run the graph with KFP's own output in `kfp.log`; return what failed, or nothing.

    No retries here: a person sees the failure, and running again continues where it stopped.
    """
    from kfp import local

    spec = graph.pipeline_spec
    for dag in (spec.root.dag, *(each.dag for each in spec.components.values())):
        for task in dag.tasks.values():
            task.retry_policy.max_retry_count = 0
    for executor in spec.deployment_spec["executors"].values() if image else ():
        executor["container"]["image"] = image
    with (
        (run_folder / "kfp.log").open("w", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", module=r"kfp\.local")
        local.init(
            runner=runner,
            pipeline_root=str(run_folder / "kfp"),
            workspace_root=str(run_folder / "kfp" / "workspace"),
            raise_on_error=True,
            enable_caching=False,
        )
        try:
            graph(**arguments)
        except RuntimeError as error:
            return str(error)
    return ""


def unfinished(run_folder: Path, began: float) -> str:
    """Which tasks have begun to log and left no record, or nothing."""
    done = {record["task"] for record in new_records(run_folder / "stages", began, set())}
    begun = {path.stem for path in (run_folder / "logs").glob("*.log")}
    return ", ".join(f"{task} left no record" for task in sorted(begun - done))


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the tasks' processes and put back what was there."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def shown(run_folder: Path, out: TextIO) -> Iterator[None]:
    """Meanwhile print a line for each task as its record appears."""
    done = threading.Event()
    thread = threading.Thread(target=follow, args=(run_folder, out, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def follow(run_folder: Path, out: TextIO, done: threading.Event) -> None:
    """Print records newer than now until `done`, and once more after it."""
    began, told_of, last = time.time(), set[str](), False
    while not last:
        last = done.wait(POLL_SECONDS)
        for record in new_records(run_folder / "stages", began, told_of):
            out.write(f"{clear(out)}{summary_line(record)} · {record['reason']}\n")
            told_of.add(record["task"])
        if out.isatty():
            out.write(clear(out) + ("" if last else newest_line(run_folder / "logs", told_of)))
        out.flush()


def new_records(folder: Path, began: float, told_of: set[str]) -> list[dict[str, Any]]:
    """Records written since the launch that nobody has been told of, oldest first."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("*.json")
        if path.stem not in told_of and path.stat().st_mtime >= began
    ]
    return sorted(found, key=lambda record: float(record["ended"]))


def clear(out: TextIO) -> str:
    """The control sequence that empties the current line of a terminal."""
    return "\r\x1b[2K" if out.isatty() else ""


def newest_line(logs: Path, told_of: set[str]) -> str:
    """The last line in the log of the task at work, cut to a terminal's width."""
    running = [path for path in logs.glob("*.log") if path.stem not in told_of]
    if not running:
        return ""
    lines = running[0].read_text(encoding="utf-8", errors="replace").splitlines()
    text = lines[-1] if lines else f"{running[0].stem} ..."
    return text[: shutil.get_terminal_size().columns - 1]


def told(error: str, run_folder: Path) -> int:
    """Show why the run stopped; return the failed task's exit code, 75 for one that was killed."""
    logs = run_folder / "logs"
    failure = logs / FAILURE
    if not failure.is_file():
        print(f"error: {error}\n  a task was killed; run again to go on", file=sys.stderr)
        print(f"  logs: {logs} and {run_folder / 'kfp.log'}", file=sys.stderr)
        return 75
    found = json.loads(failure.read_text(encoding="utf-8"))
    log = logs / f"{found['task']}.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(lines[-SHOWN_ON_FAILURE:]), file=sys.stderr)
    print(f"{found['task']} failed with exit code {found['code']}; log: {log}", file=sys.stderr)
    return int(found["code"])
