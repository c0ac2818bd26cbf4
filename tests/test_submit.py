"""Submitting to real HTTP servers that record what they are sent."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from posttrain.cli import main


class Server(ThreadingHTTPServer):
    """Keeps every request and answers by `answers`: (method, path) -> (status, JSON)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sent(self, method: str, path: str) -> Any:
        """The body of the one request of that kind."""
        (body,) = [b for m, p, _, b in self.requests if (m, p) == (method, path)]
        return body


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path, dict(self.headers), body))
        status, found = self.server.answers.get((self.command, path), (404, {"error": "absent"}))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

    do_GET = do_POST = do_PUT = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def kubeflow(server: Server) -> Server:
    api = "/apis/v2beta1"
    server.answers = {
        ("GET", f"{api}/healthz"): (200, {"multi_user": False}),
        ("GET", f"{api}/experiments"): (200, {}),
        ("POST", f"{api}/experiments"): (200, {"experiment_id": "e1"}),
        ("POST", f"{api}/runs"): (200, {"run_id": "r1"}),
        ("POST", f"{api}/recurringruns"): (200, {"recurring_run_id": "j1"}),
    }
    return server


def test_a_run_on_kubeflow(kubeflow: Server, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["submit", "--host", kubeflow.url, "--param", "seed=3", "--param", "recipe=real"]
    assert main([*argv, "--param", 'train_nodes={"pool": "h200"}']) == 0
    run = kubeflow.sent("POST", "/apis/v2beta1/runs")
    assert run["experiment_id"] == "e1"
    assert run["runtime_config"]["parameters"] == {
        "seed": 3,
        "recipe": "real",
        "train_nodes": {"pool": "h200"},
    }
    assert "rejected-sft" in run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
    assert "kubernetes" in run["pipeline_spec"]["platform_spec"]["platforms"]
    assert capsys.readouterr().out == f"run r1: {kubeflow.url}/#/runs/details/r1\n"


def test_a_schedule_on_kubeflow(kubeflow: Server) -> None:
    argv = ["submit", "--host", kubeflow.url, "--pipeline", "nightly_eval"]
    assert main([*argv, "--schedule", "30 2 * * *"]) == 0
    sent = kubeflow.sent("POST", "/apis/v2beta1/recurringruns")
    assert sent["trigger"]["cron_schedule"]["cron"] == "0 30 2 * * *"
    assert (sent["max_concurrency"], sent["no_catchup"]) == (1, True)
    assert sent["mode"] == "ENABLE"


def test_a_token_by_reference(kubeflow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert main(["submit", "--host", kubeflow.url, "--token-env", "MY_TOKEN"]) == 0
    tokens = {
        headers.get("Authorization", headers.get("authorization"))
        for _, _, headers, _ in kubeflow.requests
    }
    assert tokens == {"Bearer abc"}


def test_a_workflow_on_argo(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/api/v1/workflows/team"
    server.answers[("POST", path)] = (200, {"metadata": {"name": "posttraining-x7"}})
    argv = ["submit", "--to", "argo", "--host", server.url, "--namespace", "team"]
    assert main([*argv, "--param", "train_accelerators=1"]) == 0
    workflow = server.sent("POST", path)["workflow"]
    assert workflow["metadata"] == {"generateName": "posttraining-", "namespace": "team"}
    rl = next(t for t in workflow["spec"]["templates"] if t["name"] == "rl")
    assert rl["container"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "workflow posttraining-x7:" in capsys.readouterr().out


def test_a_schedule_on_argo_is_made_and_then_replaced(server: Server) -> None:
    path = "/api/v1/cron-workflows/posttrain"
    server.answers[("POST", path)] = (200, {"metadata": {"name": "nightly-eval"}})
    argv = ["submit", "--to", "argo", "--host", server.url, "--pipeline", "nightly_eval"]
    assert main([*argv, "--schedule", "0 4 * * *"]) == 0
    assert server.sent("POST", path)["cronWorkflow"]["spec"]["schedules"] == ["0 4 * * *"]
    there = {"metadata": {"name": "nightly-eval", "resourceVersion": "41"}}
    server.answers[("GET", f"{path}/nightly-eval")] = (200, there)
    server.answers[("PUT", f"{path}/nightly-eval")] = (200, there)
    assert main([*argv, "--schedule", "0 5 * * *"]) == 0
    sent = server.sent("PUT", f"{path}/nightly-eval")["cronWorkflow"]
    assert sent["metadata"]["resourceVersion"] == "41"
    assert sent["spec"]["schedules"] == ["0 5 * * *"]


@pytest.mark.parametrize("to", ["kubeflow", "argo"])
@pytest.mark.parametrize(
    ("status", "answer", "code", "said"),
    [
        (401, {"message": "no token"}, 2, "refused (401)"),
        (403, {"message": "not yours"}, 2, "not yours"),
        (400, {"message": "bad spec"}, 2, "bad spec"),
        (503, {"message": "starting"}, 75, "answered 503"),
        (200, b"<html>", 2, "did not answer JSON"),
    ],
)
def test_refusals(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    to: str,
    status: int,
    answer: Any,
    code: int,
    said: str,
) -> None:
    server.answers[("GET", "/apis/v2beta1/healthz")] = (status, answer)
    server.answers[("POST", "/api/v1/workflows/posttrain")] = (status, answer)
    assert main(["submit", "--to", to, "--host", server.url]) == code
    assert said in capsys.readouterr().err


def test_kubeflow_may_refuse_late(kubeflow: Server, capsys: pytest.CaptureFixture[str]) -> None:
    kubeflow.answers[("POST", "/apis/v2beta1/runs")] = (403, {"error": "no such service account"})
    assert main(["submit", "--host", kubeflow.url]) == 2
    assert "no such service account" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["kubeflow", "argo"])
def test_nobody_there(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    assert main(["submit", "--to", to, "--host", url]) == 75
    assert "cannot reach the server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--param", "sed=1"], "did you mean `seed`?"),
        (["--param", "seed=one"], "give a value of type Integer"),
        (["--param", "train_nodes=[]"], "give a value of type Dict"),
        (["--param", "seed=x", "--param", "nonsense"], "unknown parameter `nonsense`"),
        (["--schedule", "often"], "five fields are wanted"),
        (["--pipeline", "posttrianing"], "did you mean `posttraining`?"),
        (["--host", "somewhere"], "give https://HOST"),
    ],
)
def test_bad_requests_are_refused_here(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", *argv]) == 2
    assert said in capsys.readouterr().err


def test_a_token_is_never_sent_in_the_clear(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGO_TOKEN", "secret-token")
    assert main(["submit", "--to", "argo", "--host", "http://argo.example.com"]) == 2
    said = capsys.readouterr().err
    assert "token without TLS" in said
    assert "secret-token" not in said
