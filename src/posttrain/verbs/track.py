"""`posttrain track RUN`: send a run folder to MLflow, whole or what is still missing of it."""

from collections.abc import Sequence
from pathlib import Path

from posttrain.cli import tracking_uri
from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault
from posttrain.tracking import send


def main(argv: Sequence[str]) -> int:
    """Send, and say what arrived; exit code 75 when the server cannot be reached."""
    parser = Parser(prog="posttrain track", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo")
    parser.add_argument("--to", default=tracking_uri(), metavar="URI", help="MLflow server")
    arguments = parser.parse_args(list(argv))
    if not (arguments.run / "stages").is_dir():
        raise ConfigError(
            Fault("not a run folder", str(arguments.run), "it holds no `stages`", "name a run")
        )
    print(f"tracking: {send(arguments.run, arguments.to)} tasks in {arguments.to}")
    return 0
