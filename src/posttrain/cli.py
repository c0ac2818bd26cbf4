"""The one door: `posttrain STAGE ...`, and the few verbs around a whole graph.

The flags of a stage are read off its signature: ports are paths, config fields are options.
Only the chosen stage is imported, so `--help` is instant.
"""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic.fields import FieldInfo

from posttrain.artifacts import write_json
from posttrain.config import Recipe, flag_value, load_recipe, parse_overrides, resolve, threads
from posttrain.errors import ConfigError, Fault, PosttrainError, TransientError, accepted
from posttrain.execution import Request, execute
from posttrain.stages import STAGES, TASKS, Stage, load_stage

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
    "submit": ("start a run or a schedule on Kubeflow or Argo", "posttrain.submit"),
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
    try:
        with_signals()
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


def with_signals() -> None:
    """Turn SIGTERM (a pod is being taken away) into exit code 75; scratch keeps the work."""

    def preempted(number: int, frame: FrameType | None) -> None:
        raise TransientError(
            Fault("preempted", "SIGTERM", "the machine is being taken away", "run it again")
        )

    try:
        signal.signal(signal.SIGTERM, preempted)
    except ValueError:
        return  # not the main thread: a test or a notebook keeps its own handlers


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


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `ConfigError`s with the accepted names."""

    def error(self, message: str) -> None:  # type: ignore[override]
        names = [option for action in self._actions for option in action.option_strings]
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        mend = accepted(unknown, names) if message.startswith("unrecog") else f"see {self.prog} -h"
        raise ConfigError(Fault(message, self.prog, "the command line does not parse", mend))


def stage_parser(stage: Stage) -> Parser:
    """The command line of a stage."""
    parser = Parser(
        prog=f"posttrain {stage.name}",
        description=(sys.modules[stage.run.__module__].__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    ports = parser.add_argument_group("ports (folders)")
    for parameter in stage.ports:
        ports.add_argument(
            f"--{parameter.name.replace('_', '-')}",
            type=Path,
            required=parameter.required,
            nargs="+" if parameter.many else None,
            metavar="PATH",
            help=f"{'output' if parameter.port.output else 'input'}: {parameter.port.kind}",
        )
    options = parser.add_argument_group("options (they outrank the recipe)")
    for name, field in stage.config.model_fields.items():
        options.add_argument(
            f"--{name.replace('_', '-')}",
            dest=f"option_{name}",
            type=flag_value,
            default=argparse.SUPPRESS,
            metavar="VALUE",
            help=option_help(field),
        )
    run = parser.add_argument_group("run")
    run.add_argument("--recipe", default="", help="name of a shipped recipe, or a YAML file")
    run.add_argument("--task", default=stage.name, help="section of the recipe and name of the run")
    run.add_argument("--overrides", default="", help="JSON: sections laid over the recipe's")
    run.add_argument("--store", type=Path, default=None, help=f"finished work [{DEFAULT_STORE}]")
    run.add_argument("--run-folder", type=Path, default=None, help="records, curves")
    run.add_argument("--metrics", type=Path, default=None, help="report's numbers")
    run.add_argument("--tracking", choices=("on", "defer", "off"), default=None)
    run.add_argument("--force", action="store_true", help="run even if the store has the result")
    run.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def option_help(field: FieldInfo) -> str:
    """Description and default of an option; argparse takes `%` for its own."""
    default = field.get_default(call_default_factory=True)
    return f"{field.description or ''} [{default}]".replace("%", "%%")


def parse(argv: Sequence[str]) -> tuple[Stage, argparse.Namespace]:
    """Parse a stage's command line; raise `ConfigError` if it does not fit the stage."""
    stage = load_stage(argv[0])
    arguments = stage_parser(stage).parse_args(list(argv[1:]))
    if TASKS.get(arguments.task) != stage.name:
        fitting = [task for task, name in TASKS.items() if name == stage.name]
        raise ConfigError(
            Fault(
                f"`{arguments.task}` is not a task of `{stage.name}`",
                "--task",
                "each task belongs to one stage",
                accepted(arguments.task, fitting),
            )
        )
    return stage, arguments


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
    layers = layers_of(arguments.recipe, arguments.overrides)
    config = resolve(stage.config, stage.name, arguments.task, layers, flags)
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
    tracking = arguments.tracking or os.environ.get("POSTTRAIN_TRACKING", "on")
    record = led(request, lambda: tracked(request, tracking))
    if record is None:
        return 0
    if stage.announce and not record["cached"]:
        print(stage.announce(request.outputs, config, os.environ), end="", file=sys.stderr)
    if arguments.metrics:
        write_json(arguments.metrics, record["report"])
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
        follow(request.config, request.inputs["policy"])  # type: ignore[arg-type]
        return None
    try:
        return work()
    finally:
        dismiss()


def tracked(request: Request, tracking: str) -> dict[str, Any]:
    """Execute, sending metrics to MLflow meanwhile unless someone else does or nobody shall."""
    if tracking != "on" or request.run_folder is None:
        return execute(request)
    from posttrain.tracking import live, ship

    parent = os.environ.get("MLFLOW_RUN_ID")
    with live(request.run_folder, tracking_uri(), parent=parent):
        record = execute(request)
    print(ship(request.run_folder, tracking_uri(), parent=parent), file=sys.stderr)
    return record


if __name__ == "__main__":
    entry()
