"""A server that speaks as much of the Kubernetes API as a pod of ours needs: a real one, on a port
of this machine, with pods and TrainJobs in its memory.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Object = dict[str, Any]
FIRST = {"batch.kubernetes.io/job-completion-index": "0"}


class Cluster:
    """What the server knows; a test reads it and changes it."""

    def __init__(self, shared: Path) -> None:
        self.shared = shared
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {socket.gethostname(): own_pod(shared)}
        self.logs: dict[str, list[str]] = {}
        self.created: list[Object] = []
        self.deleted: list[str] = []
        self.denied: set[tuple[str, str]] = set()
        self.broken = 0
        self.lingering = 0
        self.on_create: Callable[[Object], None] = lambda job: None

    def end(self, name: str, kind: str, message: str = "") -> None:
        """Give a TrainJob its last condition."""
        condition = {"type": kind, "status": "True", "reason": "Test", "message": message}
        condition["lastTransitionTime"] = now()
        self.jobs[name]["status"] = {"conditions": [condition]}

    def add_pod(self, job: str, status: Object, name: str = "node-0-0", **labels: str) -> None:
        """Put a pod of a TrainJob there."""
        labels = {"jobset.sigs.k8s.io/jobset-name": job, **FIRST, **labels}
        metadata = {"name": f"{job}-{name}", "labels": labels}
        self.pods[f"{job}-{name}"] = {"metadata": metadata, "status": status}

    def say(self, pod: str, text: str) -> None:
        """Add a line to a pod's log."""
        self.logs.setdefault(pod, []).append(f"{now()} {text}")

    def answer(self, method: str, path: str, query: Object, body: Object) -> tuple[int, Any]:
        """Status and object, or text of a log."""
        kind, *rest = path.split("/namespaces/team/")[1].split("/")
        verb = {"POST": "create", "DELETE": "delete"}.get(method, "get" if rest else "list")
        if self.broken:
            self.broken -= 1
            return 503, failure("etcd is away")
        if (verb, kind) in self.denied:
            return 403, failure(f'User "sa" cannot {verb} resource "{kind}" in namespace "team"')
        if kind == "pods":
            return self._pods(rest, query)
        if verb == "create":
            name = body["metadata"]["name"]
            if name in self.jobs:
                return 409, failure("it exists already")
            self.jobs[name] = body | {"status": {}}
            self.created.append(body)
            self.on_create(body)
            return 201, body
        found = self.jobs.get(rest[0])
        if found is None:
            return 404, failure("not found")
        if verb == "delete":
            self.deleted.append(rest[0])
            found["metadata"] = found["metadata"] | {"deletionTimestamp": now()}
        if "deletionTimestamp" in found["metadata"]:
            self.lingering -= 1
            if self.lingering < 0:
                del self.jobs[rest[0]]
        return 200, found

    def _pods(self, rest: list[str], query: Object) -> tuple[int, Any]:
        if not rest:
            key, value = query["labelSelector"][0].split("=")
            pods = [*self.pods.values()]
            return 200, {"items": [p for p in pods if p["metadata"]["labels"].get(key) == value]}
        if rest[1:] == ["log"]:
            if rest[0] not in self.logs:
                return 400, failure("ContainerCreating")
            # As a kubelet does it: by whole seconds.
            since = query.get("sinceTime", [""])[0][:19]
            return 200, "".join(f"{x}\n" for x in self.logs[rest[0]] if x[:19] >= since)
        found = self.pods.get(rest[0])
        return (200, found) if found else (404, failure("not found"))


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def failure(message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


def own_pod(shared: Path) -> Object:
    """The pod that this process stands for: one of Argo's, on a node with two accelerators."""
    secret = {"secretKeyRef": {"name": "judge", "key": "token"}}
    labels = {"posttrain/stage": "rl", "posttrain/task": "rl", "posttrain/pool": "train"}
    main = {
        "name": "main",
        "image": "localhost/posttrain@sha256:0123",
        "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}},
        "env": [
            {"name": "JUDGE_TOKEN", "valueFrom": secret},
            {"name": "POSTTRAIN_HEARTBEAT_SECONDS", "value": "600"},
            {"name": "ARGO_NODE_ID", "value": "7"},
            {"name": "POSTTRAIN_RUN_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "volumeMounts": [{"name": "store", "mountPath": str(shared)}],
    }
    return {
        "metadata": {
            "name": socket.gethostname(),
            "labels": labels | {"kueue.x-k8s.io/queue-name": "posttrain", "app": "argo"},
        },
        "spec": {
            "nodeSelector": {"pool": "h200"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "wait", "image": "argoexec"}, main],
            "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "any"}}],
        },
    }


@contextmanager
def serving(shared: Path, kubeconfig: Path) -> Iterator[Cluster]:
    """A cluster whose API listens; `kubeconfig` is written to name it."""
    cluster = Cluster(shared)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            code, found = cluster.answer(self.command, url.path, parse_qs(url.query), body)
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET

        def log_message(self, *given: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = {"server": f"http://127.0.0.1:{server.server_port}"}
    context = {"cluster": "here", "user": "me", "namespace": "team"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": address}],
                "contexts": [{"name": "here", "context": context}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
            }
        )
    )
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
