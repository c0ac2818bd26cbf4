"""`posttrain track RUN`: send a run folder to MLflow, whole or what is still missing of it."""

from collections.abc import Sequence
from pathlib import Path

from posttrain.cli import Parser, tracking_uri
from posttrain.tracking import ship


def main(argv: Sequence[str]) -> int:
    """Send, and say what happened; 75 when the server cannot be reached."""
    parser = Parser(prog="posttrain track", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo")
    parser.add_argument("--to", default=tracking_uri(), metavar="URI", help="MLflow server")
    arguments = parser.parse_args(list(argv))
    message = ship(arguments.run, arguments.to)
    print(message)
    return 75 if "cannot be reached" in message else 0
