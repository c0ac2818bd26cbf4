"""The sandbox service and its client by HTTP: hostile programs, bad requests, bad answers."""

import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.sandbox.hostile import HOSTILE

from posttrain.check import sandbox_faults
from posttrain.errors import ConfigError, TransientError
from posttrain.rewards.verifiers import Claim, verify_all
from posttrain.sandbox import (
    Limits,
    Outcome,
    faults,
    first_working,
    remote,
    run_sandboxed,
    why_not,
)
from posttrain.sandbox.backends import Backend
from posttrain.sandbox.verdicts import Case, CodeTests, examine

DOUBLE = CodeTests(tests="assert f(X) == 4", names=("f",), before="X = 2\n", seconds=5)
RIGHT = "def f(x): return X * x"
SMALL = Limits(seconds=1, memory_mib=128, processes=12)


def start(backend: str, *words: str) -> tuple[subprocess.Popen[str], str]:
    """A service on a free port, and its address."""
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "posttrain.cli", "sandbox", "--port", "0", *words],
        env=os.environ | paths | {"POSTTRAIN_SANDBOX": backend, "SECRET_TOKEN": "hunter2"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    return process, "http://" + process.stderr.readline().strip().rpartition(" ")[2]


@pytest.fixture(scope="module", params=["landlock" if not why_not("landlock") else ""])
def service(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], str]]:
    if not isinstance(first_working(), Backend):
        pytest.skip(f"no sandbox: {first_working()}")
    limits = ("--seconds=1.5", "--memory-mib=256", "--body-mib=1")
    process, address = start(str(request.param), "--workers=2", "--queue=1", *limits)
    yield process, address
    process.terminate()
    assert process.wait(20) == 0


@pytest.fixture
def served(
    service: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Id and address of a service that the environment names."""
    monkeypatch.setenv("POSTTRAIN_SANDBOX", service[1])
    return service[0].pid, service[1]


def program(text: str) -> Outcome:
    return run_sandboxed(textwrap.dedent(text), limits=SMALL)


def asked(address: str, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    """One request, without the client's patience."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, sent)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_the_same_functions_answer_the_same(served: tuple[int, str]) -> None:
    found = run_sandboxed("print(input(), open('a/b').read())", stdin="x", files={"a/b": "y"})
    assert found[:4] == ("ok", 0, "x y\n", "")
    assert run_sandboxed(["/bin/cat"], stdin="é").stdout == "é"
    assert examine(RIGHT, DOUBLE)[:2] == ("passed", "")
    assert examine("def f(x): return 1", DOUBLE).result == "failed"
    assert examine("import os; os._exit(0)", DOUBLE).result == "died"
    reads = CodeTests(cases=(Case("1\n", "1"), Case("2\n", "2")))
    assert examine("print(input())", reads).result == "passed"
    assert examine("print(1)", reads).result == "failed"
    claims = [Claim("code", "", DOUBLE.model_dump_json(), code) for code in (RIGHT, "x = '\ud800'")]
    assert verify_all(claims) == [True, False]
    assert faults() == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_contained_and_the_service_goes_on(
    name: str, served: tuple[int, str]
) -> None:
    code, status = HOSTILE[name]
    pid, address = served
    found = program(code.format(pid=pid, port=address.rpartition(":")[2]))
    assert found.status in status.split(" or "), found
    assert "hunter2" not in found.stdout
    assert "read" not in found.stdout
    assert program("print('next')").stdout == "next\n"


def test_limits_of_the_service_are_above_those_asked_for(served: tuple[int, str]) -> None:
    asks = Limits(seconds=600, memory_mib=4096)
    endless = run_sandboxed("while True: pass", limits=asks)
    assert (endless.status, endless.seconds < 4) == ("timeout", True)
    assert run_sandboxed("b = bytearray(2**29)", limits=asks).status == "memory"
    slow = DOUBLE.model_copy(update={"seconds": 600.0})
    assert examine("def f(x):\n    while True: pass", slow).result == "timeout"


def test_who_finds_the_queue_full_waits(served: tuple[int, str]) -> None:
    body = json.dumps({"code": "import time; time.sleep(1)"}).encode()
    with ThreadPoolExecutor(8) as pool:
        statuses = [*pool.map(lambda _: asked(served[1], "/run", body)[0], range(8))]
        assert set(statuses) == {200, 429}
        many = [*pool.map(lambda n: program(f"import time; time.sleep(0.3); print({n})"), range(8))]
    assert [found.stdout for found in many] == [f"{n}\n" for n in range(8)]


def test_bad_requests_are_told(served: tuple[int, str]) -> None:
    address = served[1]
    for body in (b"", b"{", b"[]", b'{"code": 1}', b'{"code": "", "shell": true}',
                 b'{"code": "", "limits": {"seconds": -1}}', b'{"code": "", "stdin": "\xff"}',
                 b'{"code": "", "files": {"../x": ""}}', b'{"code": "", "files": 1}'):  # fmt: skip
        assert asked(address, "/run", body)[0] == 400, body
        assert asked(address, "/judge", body)[0] == 400, body
    assert asked(address, "/else", b"{}")[0] == 404
    assert asked(address, "/run", b"", Content_Length="x")[0] == 411
    assert asked(address, "/run", b"", Content_Length="-5")[0] == 411


def test_a_request_too_large_is_an_answer(served: tuple[int, str]) -> None:
    long = f"print(1)  # {'x' * 2**21}"
    assert run_sandboxed(long).status == "error"
    found = examine(long, DOUBLE)
    assert (found.result, "the service takes" in found.why) == ("error", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads all")
def test_nobody_of_its_user_reads_the_service(served: tuple[int, str]) -> None:
    for name in ("environ", "mem", "maps"):
        with pytest.raises(PermissionError):
            os.open(f"/proc/{served[0]}/{name}", os.O_RDONLY)


def test_what_runs_is_finished_after_sigterm() -> None:
    process, address = start("", "--workers", "1")
    body = json.dumps({"code": "import time; time.sleep(1); print('done')"}).encode()
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(asked, address, "/run", body) for _ in range(2)]
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        for each in running:
            status, text = each.result()
            assert (status, json.loads(text)["stdout"]) == (200, "done\n")
    assert process.wait(10) == 0
    with pytest.raises(ConnectionRefusedError):
        asked(address, "/run", body)


@pytest.mark.parametrize("backend", ["limits", "http://127.0.0.1:9"])
def test_no_service_without_walls(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.sandbox.service import main

    monkeypatch.setenv("POSTTRAIN_SANDBOX", backend)
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.0)
    with pytest.raises((ConfigError, TransientError)):
        main(["--port", "0"])


def rogue(answers: list[tuple[int, bytes]]) -> tuple[HTTPServer, str]:
    """A server that answers as told, the last for ever; it is well."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(200, b"{}")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.say(*(answers.pop(0) if len(answers) > 1 else answers[0]))

        def say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"passed", b'"passed"', b'["passed"]', b'{"result": "passed"}', b"<html>passed",
     b'{"result": "PASSED", "why": "", "seconds": 1}', b'{"result": "passed", "why": "", "seconds"',
     b'{"result": true, "why": "", "seconds": 1}'],
)  # fmt: skip
def test_a_malformed_answer_is_never_a_pass(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.15)
    server, address = rogue([(200, body)])
    monkeypatch.setenv("POSTTRAIN_SANDBOX", address)
    try:
        with pytest.raises(TransientError, match="malformed answer"):
            examine(RIGHT, DOUBLE)
    finally:
        server.shutdown()
        server.server_close()


def test_a_service_that_stumbles_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    good = (200, b'{"result": "passed", "why": "", "seconds": 0.5}')
    server, address = rogue([(503, b""), (429, b""), (200, b"{"), (500, b""), good])
    monkeypatch.setenv("POSTTRAIN_SANDBOX", address)
    try:
        assert examine(RIGHT, DOUBLE) == ("passed", "", 0.5)
    finally:
        server.shutdown()
        server.server_close()


def test_one_that_stays_away_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.2)
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "http://127.0.0.1:9")
    with pytest.raises(TransientError, match="the sandbox service does not answer") as caught:
        examine(RIGHT, DOUBLE)
    assert caught.value.exit_code == 75
    [fault] = faults()
    assert "POSTTRAIN_SANDBOX=http://127.0.0.1:9" in fault.where
    assert "refused" in fault.why
    [warning] = sandbox_faults([])
    assert warning.what.startswith("warning: ")
    assert list(sandbox_faults([fault])) == []
