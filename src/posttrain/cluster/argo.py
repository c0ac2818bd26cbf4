"""Argo Workflows through the REST API of its server.

A workflow bears a name of the client's making: where it exists already, an earlier try made it.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import yaml

from posttrain.cluster import Run, Schedule, State, Task, Wish
from posttrain.cluster.http import AbsentError, ConflictError, Server, quoted

STATES: dict[str, State] = {
    "": "pending",
    "Pending": "pending",
    "Running": "running",
    "Succeeded": "done",
    "Failed": "failed",
    "Error": "failed",
    "Skipped": "skipped",
    "Omitted": "skipped",
}
TASK_LABEL = "posttrain/task"
Node = Mapping[str, Any]


class Argo:
    """One namespace of an Argo server."""

    def __init__(self, server: Server, namespace: str | None) -> None:
        self._graphs = importlib.import_module("pipelines.argo")
        self._server = server
        self._namespace = namespace or self._graphs.NAMESPACE
        self._workflows = f"/api/v1/workflows/{quoted(self._namespace)}"
        self._crons = f"/api/v1/cron-workflows/{quoted(self._namespace)}"

    def submit(self, wish: Wish) -> str:
        built = yaml.safe_load(self._graphs.workflow(wish.graph, **wish.parameters).to_yaml())
        built["metadata"].pop("generateName", None)
        built["metadata"] |= {"name": wish.name, "namespace": self._namespace}
        with suppress(ConflictError):  # an earlier try arrived, though its answer did not
            self._server.call("POST", self._workflows, {"workflow": built})
        return wish.name

    def run(self, name: str) -> Run:
        found = self._server.call("GET", f"{self._workflows}/{quoted(name)}")
        status = found.get("status") or {}
        nodes = status.get("nodes") or {}
        state = STATES.get(status.get("phase") or "", "running")
        if state == "failed" and found["spec"].get("shutdown"):
            state = "stopped"
        tasks = sorted(tasks_of(nodes), key=lambda pair: pair[0])
        told = [task for _, task in tasks]
        return Run(name, state, status.get("message") or "", told, self.where(name))

    def logs(self, name: str, task: str, *, follow: bool) -> Iterator[str]:
        asked = {
            "selector": f"{TASK_LABEL}={task.replace('-', '_')}",
            "logOptions.container": "main",
            "logOptions.follow": str(follow).lower(),
        }
        path = f"{self._workflows}/{quoted(name)}/log?{urlencode(asked)}"
        for line in self._server.lines(path):
            if line:
                entry = json.loads(line.removeprefix("data: "))
                yield (entry.get("result") or {}).get("content", "")

    def cancel(self, name: str) -> None:
        # `stop`, not `terminate`: exit handlers shall run; both send SIGTERM to the pods.
        body = {"name": name, "namespace": self._namespace, "message": "posttrain cancel"}
        self._server.call("PUT", f"{self._workflows}/{quoted(name)}/stop", body)

    def schedules(self) -> list[Schedule]:
        items = self._server.call("GET", self._crons).get("items") or []
        return [self._schedule(item) for item in items]

    def put_schedule(self, wish: Wish, cron: str) -> Schedule:
        made = self._graphs.cron_workflow(wish.graph, cron, "Etc/UTC", **wish.parameters)
        built = yaml.safe_load(made.to_yaml())
        built["metadata"] |= {"name": wish.name, "namespace": self._namespace}
        path = f"{self._crons}/{quoted(wish.name)}"
        try:
            there = self._server.call("GET", path)
        except AbsentError:
            with suppress(ConflictError):
                self._server.call("POST", self._crons, {"cronWorkflow": built})
        else:
            built["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            # A schedule that was paused stays so: a new parameter must not start it.
            if (there.get("spec") or {}).get("suspend"):
                built["spec"]["suspend"] = True
            self._server.call("PUT", path, {"cronWorkflow": built})
        return self._schedule(built)

    def pause(self, name: str, *, paused: bool) -> None:
        word = "suspend" if paused else "resume"
        body = {"name": name, "namespace": self._namespace}
        self._server.call("PUT", f"{self._crons}/{quoted(name)}/{word}", body)

    def delete_schedule(self, name: str) -> None:
        self._server.call("DELETE", f"{self._crons}/{quoted(name)}")

    def where(self, name: str) -> str:
        return f"{self._server.host}/workflows/{self._namespace}/{name}"

    def _schedule(self, item: Mapping[str, Any]) -> Schedule:
        name, spec = item["metadata"]["name"], item["spec"]
        where = f"{self._server.host}/cron-workflows/{self._namespace}/{name}"
        return Schedule(name, " | ".join(spec["schedules"]), bool(spec.get("suspend")), where)


def tasks_of(nodes: Mapping[str, Node]) -> Iterator[tuple[str, Task]]:
    """Start and account of every task: a pod, or the retries of one."""
    children = {c for n in nodes.values() if n["type"] == "Retry" for c in n.get("children") or ()}
    for identity, node in nodes.items():
        if identity in children or node["type"] not in ("Pod", "Retry", "Skipped"):
            continue
        tries = [nodes[c] for c in node.get("children") or () if c in nodes] or [node]
        if node["type"] != "Retry":
            tries = [node]
        yield node.get("startedAt") or "", task_of_tries(node, tries)


def task_of_tries(node: Node, tries: list[Node]) -> Task:
    """One task; `tries` are its pods, the last at the end."""
    last = tries[-1]
    state = STATES.get(last.get("phase") or "", "running")
    if node["type"] == "Retry" and node.get("phase") == "Running" and state == "failed":
        state = "pending"  # between two attempts
    if (last.get("memoizationStatus") or {}).get("hit"):
        state = "cached"
    held: dict[str, float] = {}
    for each in tries:
        for resource, seconds in (each.get("resourcesDuration") or {}).items():
            held[resource] = held.get(resource, 0.0) + float(seconds)
    code = (last.get("outputs") or {}).get("exitCode")
    return Task(
        name=(node.get("displayName") or node["name"]).replace("-", "_"),
        state=state,
        seconds=seconds_of(node),
        retries=len(tries) - 1,
        code=int(code) if code not in (None, "") else None,
        reason=last.get("message") or "",
        held=held,
    )


def seconds_of(node: Node) -> float | None:
    """Seconds from the start to the end, or to now."""
    if not node.get("startedAt"):
        return None
    end = node.get("finishedAt")
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return max(0.0, (until - datetime.fromisoformat(node["startedAt"])).total_seconds())
