"""Kubeflow Pipelines through its v2beta1 API.

Its run names need not be unique, so a run is looked for by the name that the client made before it
is created, again after every failed try.
"""

import contextlib
import io
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from posttrain.cluster import Run, Schedule, State, Task, Wish
from posttrain.cluster.http import TRIES, Server, quoted, refusal
from posttrain.errors import ConfigError, Fault, TransientError, accepted

API = "/apis/v2beta1"
EXPERIMENT = "posttrain"
PAGE = 200
STATES: dict[str, State] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "skipped",
    "FAILED": "failed",
    "CANCELING": "running",
    "CANCELED": "stopped",
    "PAUSED": "pending",
}
Detail = Mapping[str, Any]


class Kubeflow:
    """One Kubeflow Pipelines server, and one namespace of it where it has several."""

    def __init__(self, server: Server, namespace: str | None) -> None:
        self._server = server
        self._namespace = namespace

    def submit(self, wish: Wish) -> str:
        for left in range(TRIES - 1, -1, -1):
            if there := self._named("runs", wish.name):
                return str(there["run_id"])
            try:
                return self._create_run(wish)
            except TransientError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _create_run(self, wish: Wish) -> str:
        with self._client() as client, compiled(wish.graph) as package:
            experiment = client.create_experiment(EXPERIMENT, namespace=self._namespace)
            run = client.run_pipeline(
                experiment.experiment_id, wish.name, package, params=dict(wish.parameters)
            )
            return str(run.run_id)

    def run(self, name: str) -> Run:
        found = self._server.call("GET", f"{API}/runs/{quoted(self._identity(name))}")
        details = (found.get("run_details") or {}).get("task_details") or []
        state = STATES.get(found.get("state") or "", "pending")
        tasks = [task for _, task in sorted(tasks_of(details), key=lambda pair: pair[0])]
        reason = (found.get("error") or {}).get("message") or ""
        return Run(name, state, reason, tasks, self.where(found["run_id"]))

    def logs(self, name: str, task: str, *, follow: bool) -> Iterator[str]:
        identity = self._identity(name)
        found = self._server.call("GET", f"{API}/runs/{quoted(identity)}")
        details = (found.get("run_details") or {}).get("task_details") or []
        pods = pods_of(details).get(task.replace("-", "_"), [])
        if not pods:
            mend = accepted(task, pods_of(details))
            why = "no pod of it has started; `posttrain status` says why"
            raise ConfigError(Fault(f"no log of `{task}`", name, why, mend))
        for pod in pods:
            asked = urlencode({"follow": str(follow and pod == pods[-1]).lower()})
            # The server streams logs under this older version of its API alone.
            path = f"/apis/v1alpha1/runs/{quoted(identity)}/nodes/{quoted(pod)}/log?{asked}"
            yield from self._server.lines(path)

    def cancel(self, name: str) -> None:
        self._server.call("POST", f"{API}/runs/{quoted(self._identity(name))}:terminate")

    def schedules(self) -> list[Schedule]:
        asked = {"page_size": str(PAGE)} | (
            {"namespace": self._namespace} if self._namespace else {}
        )
        found = self._server.call("GET", f"{API}/recurringruns?{urlencode(asked)}")
        return [self._schedule(each) for each in found.get("recurringRuns") or []]

    def put_schedule(self, wish: Wish, cron: str) -> Schedule:
        """The API cannot change one: the new one is made first, so that no night is lost between,
        and then the old one goes."""
        old = self._recurring(wish.name)
        paused = any(each.get("status") == "DISABLED" for each in old)
        with self._client() as client, compiled(wish.graph) as package:
            experiment = client.create_experiment(EXPERIMENT, namespace=self._namespace)
            made = client.create_recurring_run(
                experiment.experiment_id,
                wish.name,
                cron_expression=f"0 {cron}",
                max_concurrency=1,
                no_catchup=True,
                params=dict(wish.parameters),
                pipeline_package_path=package,
                enabled=not paused,
            )
        for each in old:
            self._server.call("DELETE", f"{API}/recurringruns/{quoted(each['recurring_run_id'])}")
        return Schedule(wish.name, cron, paused, self._where_recurring(made.recurring_run_id))

    def pause(self, name: str, *, paused: bool) -> None:
        word = "disable" if paused else "enable"
        for each in self._there(name):
            path = f"{API}/recurringruns/{quoted(each['recurring_run_id'])}:{word}"
            self._server.call("POST", path)

    def delete_schedule(self, name: str) -> None:
        for each in self._there(name):
            self._server.call("DELETE", f"{API}/recurringruns/{quoted(each['recurring_run_id'])}")

    def where(self, name: str) -> str:
        return f"{self._server.host}/#/runs/details/{name}"

    def _where_recurring(self, identity: str) -> str:
        return f"{self._server.host}/#/recurringrun/details/{identity}"

    def _schedule(self, found: Detail) -> Schedule:
        trigger = (found.get("trigger") or {}).get("cron_schedule") or {}
        cron = str(trigger.get("cron") or "").removeprefix("0 ")
        where = self._where_recurring(found["recurring_run_id"])
        return Schedule(found["display_name"], cron, found.get("status") == "DISABLED", where)

    def _recurring(self, name: str) -> list[Detail]:
        asked = {"page_size": str(PAGE), "filter": named(name)}
        asked |= {"namespace": self._namespace} if self._namespace else {}
        found = self._server.call("GET", f"{API}/recurringruns?{urlencode(asked)}")
        return [e for e in found.get("recurringRuns") or [] if e.get("display_name") == name]

    def _there(self, name: str) -> list[Detail]:
        found = self._recurring(name)
        if not found:
            mend = accepted(name, [each.name for each in self.schedules()])
            raise ConfigError(Fault(f"no schedule `{name}`", self._server.host, "not there", mend))
        return found

    def _named(self, kind: str, name: str) -> Detail | None:
        """The newest of a kind with that display name."""
        asked = {"page_size": "1", "sort_by": "created_at desc", "filter": named(name)}
        asked |= {"namespace": self._namespace} if self._namespace else {}
        found = self._server.call("GET", f"{API}/{kind}?{urlencode(asked)}").get(kind) or []
        return next((each for each in found if each.get("display_name") == name), None)

    def _identity(self, name: str) -> str:
        """The id of a run that is given by its id or by its name."""
        there = self._named("runs", name)
        return str(there["run_id"]) if there else name

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        """KFP's own client, its errors as ours."""
        self._server.call("GET", f"{API}/healthz")
        import kfp
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        host = self._server.host
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore", FutureWarning)
            try:
                yield kfp.Client(
                    host=host,
                    namespace=self._namespace or "kubeflow",
                    existing_token=self._server.token or None,
                    ssl_ca_cert=os.environ.get("SSL_CERT_FILE"),
                )
            except ApiException as error:
                raise refusal(error.status, host, str(error.body or error.reason)) from None
            except HTTPError as error:
                mend = "check --host, or the port-forward"
                fault = Fault("cannot reach the server", host, str(error), mend)
                raise TransientError(fault) from None


@contextlib.contextmanager
def compiled(graph: Any) -> Iterator[str]:
    """The path of a graph's package, as it stands here."""
    from kfp.compiler import Compiler

    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder) / f"{graph.name}.yaml")
        Compiler().compile(graph, package)
        yield package


def named(name: str) -> str:
    """The server's filter for a display name."""
    equals = {"operation": "EQUALS", "key": "name", "string_value": name}
    return json.dumps({"predicates": [equals]})


def pods_of(details: list[Detail]) -> dict[str, list[str]]:
    """Task -> the pods that ran it, first attempt first."""
    return {name: [n["pod_name"] for n in tries] for name, (_, tries) in grouped(details).items()}


def grouped(details: list[Detail]) -> dict[str, tuple[Detail, list[Detail]]]:
    """Task -> its node, and below it the pods of its attempts.

    Every task is a node of its own, with a driver beside it and executors below: one, or with
    retries a node that has one child for each attempt.
    """
    by_pod = {d["pod_name"]: d for d in details if d.get("pod_name")}
    found: dict[str, tuple[Detail, list[Detail]]] = {}
    for detail in details:
        name = detail.get("display_name") or ""
        if name.startswith(("root", "executor")) or name.endswith("-driver"):
            continue
        below = below_of(detail, by_pod)
        if below:
            found[name.replace("-", "_")] = detail, below
    return found


def below_of(detail: Detail, by_pod: Mapping[str, Detail]) -> list[Detail]:
    """The executors below a node, in order of attempts, without those that only hold others."""
    found: list[Detail] = []
    for child in detail.get("child_tasks") or []:
        node = by_pod.get(child.get("pod_name") or "")
        if node and str(node.get("display_name")).startswith("executor"):
            found += below_of(node, by_pod) or [node]
    return found


def tasks_of(details: list[Detail]) -> Iterator[tuple[str, Task]]:
    """Start and account of every task; one without executors waits for its driver.

    An executor that was skipped, was so because its driver found the result in the cache.
    """
    groups = grouped(details)
    for name, (node, tries) in groups.items():
        last = tries[-1]
        state = STATES.get(last.get("state") or "", "pending")
        task = Task(
            name=name,
            state="cached" if state == "skipped" else state,
            seconds=seconds_of(node),
            retries=len(tries) - 1,
            reason=said(last) or said(node),
        )
        yield node.get("start_time") or "", task
    for detail in details:
        node_name = detail.get("display_name") or ""
        name = node_name.removesuffix("-driver").replace("-", "_")
        if not node_name.endswith("-driver") or name == "root" or name in groups:
            continue
        failed = detail.get("state") == "FAILED"
        task = Task(
            name=name,
            state="failed" if failed else "pending",
            seconds=seconds_of(detail),
            reason=said(detail) or ("" if failed else "its driver has not ended"),
        )
        yield detail.get("start_time") or "", task


def said(detail: Detail) -> str:
    """What the server says went wrong with a node."""
    return str((detail.get("error") or {}).get("message") or "")


def seconds_of(detail: Detail) -> float | None:
    """Seconds from the start to the end, or to now. An end in 1970 is none."""
    if not detail.get("start_time"):
        return None
    end = str(detail.get("end_time") or "1970")
    until = datetime.now(UTC) if end.startswith("1970") else datetime.fromisoformat(end)
    return max(0.0, (until - datetime.fromisoformat(detail["start_time"])).total_seconds())
