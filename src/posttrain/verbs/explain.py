"""`posttrain explain RUN`: of each task of a run, whether it was run, and why."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posttrain.command_line import Parser
from posttrain.errors import DataError, Fault


def records(run_folder: Path) -> list[dict[str, Any]]:
    """The task records of a run in the order in which the tasks began."""
    found = [
        json.loads(p.read_text(encoding="utf-8")) for p in (run_folder / "stages").glob("*.json")
    ]
    if not found:
        raise DataError(
            Fault("no records", str(run_folder), "no task has finished there", "give a run folder")
        )
    return sorted(found, key=lambda record: record["started"])


def main(argv: Sequence[str]) -> int:
    """Print a line per task, or the records' essentials as JSON."""
    parser = Parser(prog="posttrain explain", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo")
    parser.add_argument("--json", action="store_true")
    arguments: argparse.Namespace = parser.parse_args(list(argv))
    keep = ("task", "stage", "cached", "reason", "key", "seconds", "inputs")
    found = [{name: record[name] for name in keep} for record in records(arguments.run)]
    if arguments.json:
        print(json.dumps(found, indent=2, sort_keys=True))
        return 0
    width = max(len(record["task"]) for record in found)
    for record in found:
        state = "cached" if record["cached"] else "ran   "
        print(f"{record['task']:<{width}}  {state}  {record['reason']}")
    return 0
