"""`posttrain rollback`: move the champion alias back to the last good model."""

from collections.abc import Sequence

from posttrain.cli import tracking_uri
from posttrain.command_line import Parser


def main(argv: Sequence[str]) -> int:
    """Move the alias and say to which version."""
    from posttrain.registry import rollback

    parser = Parser(prog="posttrain rollback", description=__doc__)
    parser.add_argument("--model", default="posttrain-policy", help="registered model")
    arguments = parser.parse_args(list(argv))
    print(rollback(arguments.model, tracking_uri()))
    return 0
