"""`posttrain status RUN`: the tasks of a run: state, duration, retries, exit code and why.

RUN is a run folder, such as runs/demo, or with `--to` the name of a run on a cluster.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from posttrain.cluster import OVER, Run, add_cluster, cluster_of
from posttrain.cluster.folder import run_of
from posttrain.command_line import Parser
from posttrain.errors import TransientError

EVERY_SECONDS = 5.0
PATIENCE = 60
"""How often in a row a server may be away while a run is watched: five minutes."""


def main(argv: Sequence[str]) -> int:
    """Print the table; with `--watch` again until the run is over, and exit as it did."""
    parser = Parser(prog="posttrain status", description=__doc__)
    parser.add_argument("run", metavar="RUN")
    add_cluster(parser, default=None)
    parser.add_argument("--watch", action="store_true", help="until the run is over")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(list(argv))
    ask = asked(given)
    run = watched(ask, sys.stdout if not given.json else sys.stderr) if given.watch else ask()
    if given.json:
        print(json.dumps(asdict(run), indent=2))
    elif not given.watch:
        print(table(run))
    return exit_code(run) if given.watch else 0


def asked(given: Any) -> Callable[[], Run]:
    """How to look at the run that the options name."""
    if not given.to:
        return lambda: run_of(Path(given.run))
    cluster = cluster_of(given)
    return lambda: cluster.run(given.run)


def watched(ask: Callable[[], Run], out: TextIO) -> Run:
    """Look again and again, print what changed, and return the run once it is over."""
    before, away = "", 0
    while True:
        try:
            run, away = ask(), 0
        except TransientError:
            away += 1
            if away >= PATIENCE:
                raise
            time.sleep(EVERY_SECONDS)
            continue
        states = str([(t.name, t.state, t.retries, t.reason) for t in run.tasks]) + run.state
        if states != before:
            before = states
            print(table(run), file=out, flush=True)
        if run.state in OVER:
            return run
        time.sleep(EVERY_SECONDS)


def exit_code(run: Run) -> int:
    """0 for a run that is done; else the code of the task that failed, 1 where none is known."""
    if run.state in ("done", "cached"):
        return 0
    return next((t.code for t in run.tasks if t.state in ("failed", "stopped") and t.code), 1)


def table(run: Run) -> str:
    """The run in a line, and its tasks below."""
    head = f"{run.name}: {run.state}" + (f" ({run.reason})" if run.reason else "")
    rows = [("task", "state", "seconds", "retries", "exit", "why")]
    for task in run.tasks:
        seconds = "" if task.seconds is None else f"{task.seconds:.0f}"
        code = "" if task.code is None else str(task.code)
        rows.append((task.name, task.state, seconds, str(task.retries), code, task.reason))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)) + f"  {row[5]}"
        for row in rows
    ]
    return "\n".join([head, *(line.rstrip() for line in lines)])
