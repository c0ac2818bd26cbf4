"""The one door: `posttrain STAGE ...`, and the few verbs around a whole graph.

Only the chosen stage is imported, so `--help` is instant.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from posttrain import heartbeat, interruption
from posttrain.artifacts import MANIFEST, digest_of, file_digest, write_json
from posttrain.command_line import parse
from posttrain.config import Recipe, load_recipe, parse_overrides, resolve, threads
from posttrain.costs.meter import metered
from posttrain.disk import mended_disk_at
from posttrain.errors import ConfigError, Fault, PosttrainError, accepted
from posttrain.execution import Request, execute, seems_held
from posttrain.stages import STAGES, TASKS

DEFAULT_STORE = "runs/store"
DEFAULT_TRACKING_URI = "sqlite:///runs/mlflow.db"
DEFAULT_DATA = "../shared/data"

ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "1000",
    "THP_MEM_ALLOC_ENABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Set unless the caller did. Passive waiting: spinning threads cost 3-10x on a shared machine. A
thousand turns, some microseconds, before a thread sleeps: a step of RL takes 15% less on an idle
machine and no more on a busy one (with ten thousand, twice as long there). Huge pages: an update of
a small model spends a tenth of its time on page faults without them."""

VERBS: dict[str, tuple[str, str]] = {
    "run": ("run a graph on this machine through kfp.local", "posttrain.verbs.run"),
    "check": ("validate recipe, data, model, disk and services before any work", "posttrain.check"),
    "arena": ("compare methods of `rl` under one budget", "posttrain.verbs.arena"),
    "explain": ("say of each task of a run why it was or was not run", "posttrain.verbs.explain"),
    "track": ("send a run folder to MLflow", "posttrain.verbs.track"),
    "mlflow": ("set up an MLflow server, or move its database", "posttrain.verbs.mlflow"),
    "sandbox": ("run code for others behind walls, by HTTP", "posttrain.sandbox.service"),
    "submit": ("start a run on Kubeflow or Argo", "posttrain.verbs.submit"),
    "status": ("say how far a run is, here or on a cluster", "posttrain.verbs.status"),
    "logs": ("print what a task of a run wrote", "posttrain.verbs.logs"),
    "cancel": ("stop a run on a cluster; its checkpoints stay", "posttrain.verbs.cancel"),
    "schedule": ("start a graph on a cluster again and again", "posttrain.verbs.schedule"),
    "cost": ("say what a run spent, and what a point of score cost", "posttrain.verbs.cost"),
    "rollback": ("move the champion alias back to the last good model", "posttrain.verbs.rollback"),
    "card": ("write the card of a dataset folder, Markdown and HTML", "posttrain.verbs.card"),
    "trace": ("tell of a row where it came from and what it reached", "posttrain.verbs.trace"),
    "dropped": ("count dropped rows by reason, and show some", "posttrain.verbs.dropped"),
    "plugins": ("list the plug-ins and their options", "posttrain.verbs.plugins"),
}
"""Verb -> one line and the module whose `main(argv) -> int` serves it."""


def entry() -> None:
    """Console script."""
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `posttrain.errors`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads()))
    with interruption.listening():
        return dispatched(argv)


def dispatched(argv: Sequence[str]) -> int:
    """Dispatch, and turn what was raised into an exit code."""
    try:
        return dispatch(argv)
    except PosttrainError as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted; run the same command to go on", file=sys.stderr)
        return 130
    except MemoryError:
        traceback.print_exc()
        return 1


def dispatch(argv: Sequence[str]) -> int:
    """Hand the command line to a stage or a verb."""
    if not argv or argv[0] in ("-h", "--help"):
        print(overview())
        return 0
    if argv[0] == "--version":
        from posttrain import __version__

        print(__version__)
        return 0
    if argv[0] in VERBS:
        import importlib

        verb: Callable[[Sequence[str]], int] = importlib.import_module(VERBS[argv[0]][1]).main
        return verb(argv[1:])
    if argv[0] not in STAGES:
        raise ConfigError(
            Fault(
                f"unknown command `{argv[0]}`",
                "command line",
                "it is neither a stage nor a verb",
                accepted(argv[0], [*STAGES, *VERBS]),
            )
        )
    return run_stage(argv)


def overview() -> str:
    """What `posttrain --help` prints."""
    width = max(map(len, [*STAGES, *VERBS]))
    stages = "\n".join(f"  {name:<{width}}  {about}" for name, about in STAGES.items())
    verbs = "\n".join(f"  {name:<{width}}  {about}" for name, (about, _) in VERBS.items())
    return (
        "usage: posttrain STAGE|VERB [options]      (posttrain STAGE --help lists the options)\n"
        f"\nstages\n{stages}\n\nverbs\n{verbs}\n\n"
        "exit codes: 0 done · 1 bug · 2 configuration · 3 data · 75 transient, run again"
    )


def layers_of(recipe: str, overrides: str) -> list[Recipe]:
    """The recipe and the overrides, weakest first, with environment placeholders filled in."""
    named = [load_recipe(recipe, TASKS)] if recipe else []
    laid_over = parse_overrides(overrides, TASKS)
    return [filled(layer) for layer in [*named, *([laid_over] if laid_over else [])]]


def filled(recipe: Recipe) -> Recipe:
    """Replace `${POSTTRAIN_DATA}` and `${MLFLOW_TRACKING_URI}` in a recipe's values."""
    known = {
        "${POSTTRAIN_DATA}": os.environ.get("POSTTRAIN_DATA", DEFAULT_DATA),
        "${MLFLOW_TRACKING_URI}": tracking_uri(),
    }

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            for name, text in known.items():
                value = value.replace(name, text)
            return value
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        return [fill(inner) for inner in value] if isinstance(value, list) else value

    return Recipe(recipe.name, recipe.where, recipe.about, recipe.seed, fill(dict(recipe.sections)))


def tracking_uri() -> str:
    """The MLflow server: `MLFLOW_TRACKING_URI`, else SQLite under `runs/`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_TRACKING_URI


def run_stage(argv: Sequence[str]) -> int:
    """Run one stage from its command line."""
    stage, arguments = parse(argv)
    flags = {
        name.removeprefix("option_"): value
        for name, value in vars(arguments).items()
        if name.startswith("option_") and value != ""
    }
    work = execution_on(arguments.machines, stage.name)
    layers = layers_of(arguments.recipe, arguments.overrides)
    given = (stage.config, stage.name, arguments.task, layers, flags)
    config = resolve(*given, try_plugins=False)
    run_folder = arguments.run_folder or Path(os.environ.get("POSTTRAIN_RUN") or "runs/manual")
    paths = {p.name: getattr(arguments, p.name) for p in stage.ports}
    request = Request(
        stage=stage,
        task=arguments.task,
        config=config,
        inputs={p.name: paths[p.name] for p in stage.inputs if paths[p.name] is not None},
        outputs={p.name: paths[p.name] for p in stage.outputs},
        store=arguments.store or Path(os.environ.get("POSTTRAIN_STORE") or DEFAULT_STORE),
        run_folder=run_folder,
        force=arguments.force,
        recipe=arguments.recipe,
    )
    if not seems_held(request):
        resolve(*given)
    tracking = arguments.tracking or os.environ.get("POSTTRAIN_TRACKING", "on")
    account = (run_folder, arguments.task, stage.name, arguments.run_budget, arguments.prices)
    with metered(*account) as meter, heartbeat.watched():
        request = replace(request, costs=meter.conclude)
        record = led(request, lambda: tracked(request, tracking, work))
    if record is None:
        return 0
    if stage.announce and not record["cached"]:
        print(stage.announce(request.outputs, config, os.environ), end="", file=sys.stderr)
    if arguments.metrics:
        with mended_disk_at(arguments.metrics):
            write_json(arguments.metrics, record["report"])
    if arguments.digest:
        files = {port: file_digest(folder / MANIFEST) for port, folder in request.outputs.items()}
        arguments.digest.write_text(digest_of(files), encoding="utf-8")
    if arguments.json:
        print(json.dumps(record["report"], indent=2, sort_keys=True))
    return 0


def led(request: Request, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Do the work; under `torchrun` process 0 does, and the others help `rl` to update."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return work()
    leads = os.environ["RANK"] == "0"
    if request.stage.name != "rl":
        return work() if leads else None
    from posttrain.rl.follow import dismiss, follow

    if not leads:
        with interruption.at_work():
            follow(request.config, request.inputs["policy"])  # type: ignore[arg-type]
        interruption.heed()
        return None
    try:
        return work()
    finally:
        dismiss()


def execution_on(machines: int, stage: str) -> Callable[[Request], dict[str, Any]]:
    """`execute` here, or on so many machines of the cluster that this pod belongs to."""
    if machines == 1:
        return execute
    from posttrain.trainjob.job import execute_on, refuse

    refuse(stage, machines)
    return partial(execute_on, machines=machines)


def tracked(
    request: Request, tracking: str, work: Callable[[Request], dict[str, Any]]
) -> dict[str, Any]:
    """Execute, sending metrics to MLflow meanwhile unless someone else does or nobody shall."""
    if tracking != "on" or request.run_folder is None:
        return work(request)
    from posttrain.tracking import live, ship

    parent = os.environ.get("MLFLOW_RUN_ID")
    with live(request.run_folder, tracking_uri(), parent=parent):
        record = work(request)
    print(ship(request.run_folder, tracking_uri(), parent=parent), file=sys.stderr)
    return record


if __name__ == "__main__":
    entry()
