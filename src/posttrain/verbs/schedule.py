"""`posttrain schedule`: start a graph on a cluster again and again.

`put` creates a schedule, or replaces the one of that name (a paused one stays paused); a run that
is not over is not overtaken by the next. Times are UTC.
"""

import argparse
import json
from collections.abc import Sequence

from posttrain.cluster import Schedule, Wish, add_cluster, cluster_of
from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault
from posttrain.launch import graph_named
from posttrain.verbs.submit import add_graph, checked_name, typed_parameters


def main(argv: Sequence[str]) -> int:
    """Do what the word says, and print the schedules that it concerns."""
    parser = Parser(prog="posttrain schedule", description=__doc__)
    words = parser.add_subparsers(
        dest="word", required=True, metavar="put|list|pause|resume|delete"
    )
    put = words.add_parser("put", help="create or replace a schedule")
    add_graph(put)
    put.add_argument("--cron", required=True, help="minute hour day month weekday: '30 2 * * *'")
    put.add_argument("--name", help="of the schedule [the graph's]")
    listed = words.add_parser("list", help="all schedules")
    listed.add_argument("--json", action="store_true")
    for word, about in (
        ("pause", "start no more runs"),
        ("resume", "start runs again"),
        ("delete", "remove the schedule; its runs stay"),
    ):
        words.add_parser(word, help=about).add_argument("name", metavar="NAME")
    for each in words.choices.values():
        add_cluster(each, default="kubeflow")
    given = parser.parse_args(list(argv))
    show(act(given), as_json=getattr(given, "json", False))
    return 0


def act(given: argparse.Namespace) -> list[Schedule]:
    """Carry out one word; the schedules to show."""
    if given.word == "put":
        graph = graph_named(given.pipeline)
        name = checked_name(given.name or graph.name)
        parameters = typed_parameters(graph, given.param)
        cron = five_fields(given.cron)
        return [cluster_of(given).put_schedule(Wish(graph, name, parameters), cron)]
    cluster = cluster_of(given)
    if given.word == "delete":
        cluster.delete_schedule(given.name)
        return []
    if given.word != "list":
        cluster.pause(given.name, paused=given.word == "pause")
    found = cluster.schedules()
    return found if given.word == "list" else [each for each in found if each.name == given.name]


def five_fields(cron: str) -> str:
    """The schedule; ConfigError unless it has five fields."""
    if len(cron.split()) == 5:
        return cron
    mend = "minute hour day month weekday, such as '30 2 * * *'"
    raise ConfigError(Fault(f"bad schedule `{cron}`", "--cron", "five fields are wanted", mend))


def show(found: Sequence[Schedule], *, as_json: bool) -> None:
    """A line each."""
    if as_json:
        print(json.dumps([each._asdict() for each in found], indent=2))
        return
    for each in found:
        print(f"{each.name}  {each.cron} UTC  {'paused' if each.paused else 'on'}  {each.where}")
