"""Runs on a cluster, and those of this machine in the same words.

Kubeflow Pipelines and Argo Workflows answer the same questions through `Cluster`; a run folder
answers those that it can. To add another, write a class and add a line to `CLUSTERS`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from posttrain.cluster.http import Server
from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault, accepted

State = Literal["pending", "running", "done", "cached", "failed", "stopped", "skipped"]
OVER: tuple[State, ...] = ("done", "cached", "failed", "stopped", "skipped")


@dataclass(frozen=True)
class Task:
    """One task of a run. `seconds` since it began, until now or its end; `retries` are attempts
    after the first; `code` is an exit code; `reason` says why it waits or failed. `held` maps a
    resource, such as cpu, to its seconds, where the cluster counts them."""

    name: str
    state: State
    seconds: float | None = None
    retries: int = 0
    code: int | None = None
    reason: str = ""
    held: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run and its tasks, in the order in which they began."""

    name: str
    state: State
    reason: str
    tasks: list[Task]
    where: str


class Schedule(NamedTuple):
    """A graph that is started again and again; `cron` has five fields, UTC."""

    name: str
    cron: str
    paused: bool
    where: str


class Wish(NamedTuple):
    """What shall run: a graph with parameters, under a name that its client made, so that a
    request which was sent twice is known to be one."""

    graph: Any
    name: str
    parameters: Mapping[str, Any]


class Cluster(Protocol):
    """What the verbs ask of a cluster. Names that are not there are ConfigErrors; a server that
    is away is a TransientError."""

    def submit(self, wish: Wish) -> str:
        """Start a run, or find the one that an earlier try has started; returns its name."""
        ...

    def run(self, name: str) -> Run: ...

    def logs(self, name: str, task: str, *, follow: bool) -> Iterator[str]: ...

    def cancel(self, name: str) -> None:
        """SIGTERM to every pod: stages write checkpoints and exit within their grace."""
        ...

    def schedules(self) -> list[Schedule]: ...

    def put_schedule(self, wish: Wish, cron: str) -> Schedule:
        """Create the schedule, or replace the one of that name."""
        ...

    def pause(self, name: str, *, paused: bool) -> None: ...

    def delete_schedule(self, name: str) -> None: ...

    def where(self, name: str) -> str:
        """The page of a run in the cluster's UI."""
        ...


def _kubeflow(server: Server, namespace: str | None) -> Cluster:
    from posttrain.cluster.kubeflow import Kubeflow

    return Kubeflow(server, namespace)


def _argo(server: Server, namespace: str | None) -> Cluster:
    from posttrain.cluster.argo import Argo

    return Argo(server, namespace)


class Kind(NamedTuple):
    """Where a port-forward puts an API server, the variable of its token, and its client."""

    host: str
    token_env: str
    client: Callable[[Server, str | None], Cluster]


CLUSTERS: dict[str, Kind] = {
    "kubeflow": Kind("http://localhost:8888", "KFP_TOKEN", _kubeflow),
    "argo": Kind("https://localhost:2746", "ARGO_TOKEN", _argo),
}


def add_cluster(parser: Parser, *, default: str | None) -> None:
    """The options that say where; without a default, a run is a folder of this machine."""
    about = f"[{default}]" if default else "[none: RUN is a run folder]"
    group = parser.add_argument_group("cluster")
    group.add_argument("--to", choices=sorted(CLUSTERS), default=default, help=about)
    group.add_argument("--host", help="URL of the API server [a local port-forward]")
    group.add_argument("--namespace", help="[argo: posttrain; kubeflow: the user's own]")
    group.add_argument("--token-env", metavar="NAME", help="variable that holds the token")


def cluster_of(given: Any) -> Cluster:
    """The cluster that the options name; ConfigError for a bad host or a token without TLS."""
    kind = CLUSTERS[given.to]
    host = (given.host or kind.host).rstrip("/")
    token = os.environ.get(given.token_env or kind.token_env, "")
    return kind.client(Server(host, token), given.namespace)


def task_of(run: Run, name: str) -> Task:
    """A task of a run by its name; ConfigError with the names that there are."""
    wanted = name.replace("-", "_")
    for task in run.tasks:
        if task.name == wanted:
            return task
    mend = accepted(wanted, [task.name for task in run.tasks])
    raise ConfigError(Fault(f"no task `{name}`", run.name, "it has not begun, or is none", mend))
