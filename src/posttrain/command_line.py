"""A stage's command line, read off its signature: ports are paths, config fields are options."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from posttrain.config import flag_value
from posttrain.errors import ConfigError, Fault, accepted
from posttrain.stages import TASKS, Stage, load_stage


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
            type=str if field.annotation is str else flag_value,
            default=argparse.SUPPRESS,
            metavar="VALUE",
            help=option_help(field),
        )
    run = parser.add_argument_group("run")
    run.add_argument("--recipe", default="", help="name of a shipped recipe, or a YAML file")
    run.add_argument("--task", default=stage.name, help="section of the recipe and name of the run")
    run.add_argument("--overrides", default="", help="JSON: sections laid over the recipe's")
    run.add_argument("--store", type=Path, default=None, help="finished work [runs/store]")
    run.add_argument("--run-folder", type=Path, default=None, help="records, curves")
    run.add_argument("--machines", type=int, default=1, help="above 1: a TrainJob (`rl`, in a pod)")
    run.add_argument("--run-budget", type=float, default=0.0, help="stop the run when it is spent")
    run.add_argument("--prices", type=Path, default=None, help="YAML: what an hour costs")
    run.add_argument("--metrics", type=Path, default=None, help="report's numbers")
    run.add_argument("--digest", type=Path, default=None, help="one digest of all outputs")
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
