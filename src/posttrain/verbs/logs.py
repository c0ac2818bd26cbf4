"""`posttrain logs RUN TASK`: what a task wrote, all its attempts.

RUN is a run folder, such as runs/demo, or with `--to` the name of a run on a cluster.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posttrain.cluster import add_cluster, cluster_of, task_of
from posttrain.cluster.folder import lines_of, run_of
from posttrain.command_line import Parser


def main(argv: Sequence[str]) -> int:
    """Print the lines; with `--follow` until the task is over."""
    parser = Parser(prog="posttrain logs", description=__doc__)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("task", metavar="TASK", help="such as rl; see `posttrain status RUN`")
    add_cluster(parser, default=None)
    parser.add_argument("--follow", action="store_true", help="until the task is over")
    given = parser.parse_args(list(argv))
    with contextlib.suppress(BrokenPipeError):
        for line in lines(given):
            print(line, flush=given.follow)
    return 0


def lines(given: Any) -> Iterator[str]:
    """The log that the options name."""
    if not given.to:
        task = task_of(run_of(Path(given.run)), given.task)
        return lines_of(Path(given.run), task.name, follow=given.follow)
    cluster = cluster_of(given)
    task = task_of(cluster.run(given.run), given.task)
    return cluster.logs(given.run, task.name, follow=given.follow)
