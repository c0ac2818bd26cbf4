"""The message on a verdict, sent through the command line to a real HTTP server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.gate.conftest import Bench

from posttrain.cli import main
from posttrain.gate import webhook
from posttrain.gate.webhook import links, post

SECRET = "T0/B0/not-to-be-told"


class Receiver(ThreadingHTTPServer):
    """Keeps every message; answers with the given statuses in turn, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.messages: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.messages.append(json.loads(body))
        assert self.headers["Content-Type"] == "application/json"
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def gate(bench: Bench, *more: str) -> int:
    """`posttrain gate` on a policy that got worse."""
    root = bench.root
    if not (root / "policies").exists():
        bench.scores("ours", {"arithmetic": 0.3})
        bench.scores("theirs", {"arithmetic": 0.5})
        bench.policy("a")
    ports = {
        "challenger": root / "scores/ours",
        "champion": root / "scores/theirs",
        "policy": root / "policies/a",
        "verdict": root / "verdict",
        "store": root / "store",
        "run-folder": root / "run",
    }
    argv = [word for name, path in ports.items() for word in (f"--{name}", str(path))]
    nowhere = ["--overrides", '{"gate": {"registry_uri": ""}}', "--tracking", "off"]
    options = [*nowhere, "--webhook-env", "NIGHT_HOOK"]
    return main(["gate", *argv, *options, *more])


def test_the_message_tells_the_verdict_once(
    bench: Bench,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NIGHT_HOOK", receiver.url)
    assert gate(bench) == 0
    assert gate(bench) == 0, "the same night fired twice"
    (told,) = receiver.messages
    assert (told["verdict"], told["promoted"]) == ("fail", False)
    assert told["suites"]["arithmetic"]["difference"] == pytest.approx(-0.2)
    assert "arithmetic: -20.0 points, 95% interval -2" in told["text"]
    assert "✕ FAIL: posttrain-policy" in told["text"]
    assert len(json.dumps(told)) < 3000
    said = capsys.readouterr()
    assert "webhook: told NIGHT_HOOK" in said.err
    written = [path for path in bench.root.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not any(SECRET.encode() in path.read_bytes() for path in written)
    assert SECRET not in said.err + said.out


@pytest.mark.parametrize(
    ("statuses", "tries", "told"),
    [
        ([503, 429], 3, "webhook: told NIGHT_HOOK"),
        ([500, 500, 500], 3, "was not taken (HTTP 500); the verdict stands"),
        ([404], 1, "was not taken (HTTP 404); the verdict stands"),
    ],
)
def test_a_receiver_that_refuses_fails_nothing(
    bench: Bench,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    statuses: list[int],
    tries: int,
    told: str,
) -> None:
    monkeypatch.setattr(webhook, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("NIGHT_HOOK", receiver.url)
    receiver.statuses = statuses
    assert gate(bench) == 0
    assert len(receiver.messages) == tries
    said = capsys.readouterr().err
    assert told in said
    assert SECRET not in said


def test_a_variable_that_is_not_set_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NIGHT_HOOK", raising=False)
    assert gate(bench) == 0
    assert "NIGHT_HOOK is not set, nobody was told" in capsys.readouterr().err
    assert gate(bench, "--webhook-env", "https://x/secret") == 2


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"http://example.org/{SECRET}", "no https address"),
        (SECRET, "no https address"),
        (f"https://[half/{SECRET}", "no https address"),
        (f"http://127.0.0.1:9/{SECRET}", "refused"),
    ],
)
def test_what_is_told_of_a_failure_holds_no_address(
    monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    monkeypatch.setattr(webhook, "PAUSE_SECONDS", 0.01)
    trouble = post(address, {"text": "x"})
    assert why in trouble
    assert SECRET not in trouble


def test_a_silent_receiver_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that takes connections and never answers."""
    import socket

    monkeypatch.setattr(webhook, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(webhook, "PAUSE_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert post(f"http://127.0.0.1:{silent.getsockname()[1]}/", {}) == "TimeoutError"


def test_links_hold_no_password() -> None:
    found = links("https://me:word@mlflow.example/base/", "posttrain policy")
    assert found["model"] == "https://mlflow.example/base/#/models/posttrain%20policy"
    assert links("sqlite:///runs/mlflow.db", "m") == {}
