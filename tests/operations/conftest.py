"""A real HTTP server that answers as an API server does and records what it is sent."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posttrain.cluster import http

Answer = tuple[int, Any]


class Server(ThreadingHTTPServer):
    """`answers`: (method, path) -> (status, JSON or bytes), or a function of the query. `hang_up`
    counts requests of a kind that are carried out and never answered: a time-out on the way."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], Answer | Callable[[dict[str, str], Any], Answer]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.queries: list[tuple[str, dict[str, str]]] = []
        self.hang_up: dict[tuple[str, str], int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sent(self, method: str, path: str) -> Any:
        """The body of the one request of that kind."""
        (body,) = self.all_sent(method, path)
        return body

    def all_sent(self, method: str, path: str) -> list[Any]:
        return [b for m, p, _, b in self.requests if (m, p) == (method, path)]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.server.requests.append((self.command, parts.path, dict(self.headers), body))
        self.server.queries.append((parts.path, query))
        kind = self.command, parts.path
        found = self.server.answers.get(kind, (404, {"error": "absent"}))
        status, told = found(query, body) if callable(found) else found
        if self.server.hang_up.get(kind, 0):
            self.server.hang_up[kind] -= 1
            self.connection.close()
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(told if isinstance(told, bytes) else json.dumps(told).encode())

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http, "PAUSE_SECONDS", 0.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def kubeflow(server: Server) -> Server:
    """A Kubeflow Pipelines server that keeps the runs and schedules that it is given."""
    api = "/apis/v2beta1"
    runs: list[dict[str, Any]] = []
    recurring: list[dict[str, Any]] = []

    def kept(into: list[dict[str, Any]], key: str) -> Callable[[dict[str, str], Any], Answer]:
        def create(query: dict[str, str], body: Any) -> Answer:
            into.append(body | {key: f"{key[0]}{len(into) + 1}"})
            return 200, into[-1]

        return create

    def listed(found: list[dict[str, Any]], name: str) -> Callable[[dict[str, str], Any], Answer]:
        def show(query: dict[str, str], body: Any) -> Answer:
            predicates = json.loads(query.get("filter", "{}")).get("predicates", [])
            wanted = {p["string_value"] for p in predicates if p["key"] == "name"}
            return 200, {name: [r for r in found if not wanted or r["display_name"] in wanted]}

        return show

    server.answers = {
        ("GET", f"{api}/healthz"): (200, {"multi_user": False}),
        ("GET", f"{api}/experiments"): (200, {}),
        ("POST", f"{api}/experiments"): (200, {"experiment_id": "e1"}),
        ("GET", f"{api}/runs"): listed(runs, "runs"),
        ("POST", f"{api}/runs"): kept(runs, "run_id"),
        ("GET", f"{api}/recurringruns"): listed(recurring, "recurringRuns"),
        ("POST", f"{api}/recurringruns"): kept(recurring, "recurring_run_id"),
    }
    return server
