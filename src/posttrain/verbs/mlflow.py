"""`posttrain mlflow`: put experiments, views and models on a server; move its database."""

import os
from collections.abc import Sequence
from pathlib import Path

from posttrain.cli import tracking_uri
from posttrain.command_line import Parser


def main(argv: Sequence[str]) -> int:
    """Serve `apply` and `migrate`; say what was done."""
    parser = Parser(prog="posttrain mlflow", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="apply|migrate")
    apply = verbs.add_parser(
        "apply", help="make experiments, saved views and models; twice is once"
    )
    apply.add_argument(
        "file", type=Path, nargs="?", default=Path("mlflow/experiments.yaml"), metavar="FILE"
    )
    apply.add_argument("--to", default=tracking_uri(), metavar="URI", help="MLflow server")
    migrate = verbs.add_parser("migrate", help="copy a SQLite file into an empty Postgres database")
    migrate.add_argument("file", type=Path, metavar="SQLITE_FILE")
    migrate.add_argument(
        "--to",
        default=os.environ.get("MLFLOW_BACKEND_STORE_URI", ""),
        metavar="URI",
        help="the empty database [MLFLOW_BACKEND_STORE_URI, which hides its password]",
    )
    migrate.add_argument(
        "--artifacts",
        default="",
        metavar="URI",
        help="where the files beside it will stand, such as mlflow-artifacts:/ [unchanged]",
    )
    given = parser.parse_args(list(argv))
    if given.verb == "apply":
        return applied(given.file, given.to)
    return migrated(given.file, given.to, given.artifacts)


def applied(file: Path, uri: str) -> int:
    """Put a file on a server, and say what changed and where the views are."""
    from posttrain.mlflow_setup import apply, links, read_setup

    setup = read_setup(file)
    changes = apply(setup, uri)
    print("\n".join([*(changes or [f"{uri} has all of {file}"]), *links(setup, uri)]))
    return 0


def migrated(file: Path, uri: str, artifacts: str) -> int:
    """Copy a database, and say how much of what."""
    from posttrain.mlflow_migrate import migrate

    copied = migrate(file, uri, artifacts)
    print("\n".join(f"{table}: {rows} rows" for table, rows in copied.items() if rows))
    print(f"{sum(copied.values())} rows copied and compared")
    return 0
