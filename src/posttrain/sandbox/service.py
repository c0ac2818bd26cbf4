"""A sandbox for others, by HTTP: it runs programs behind the walls of its own pod.

`POST /run` answers how a program ended, `POST /judge` whether code passes its tests, `GET /health`
that the service is there. More questions than it can hold are turned away with 429, each is held to
this service's limits, and SIGTERM lets those that are in go to their end. Without walls it does not
start.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault, TransientError
from posttrain.sandbox import CHOICE, backend_of, run_sandboxed
from posttrain.sandbox.backends import Backend
from posttrain.sandbox.cell import kernel
from posttrain.sandbox.limits import Limits, Outcome
from posttrain.sandbox.verdicts import CodeTests, Verdict, cores, examine

SLOWEST_SECONDS = 30.0
"""Between two parts of a request (assumed)."""
SPARE_CONNECTIONS = 32
"""Besides those that wait or run: health, and those that are being turned away (assumed)."""


class Program(BaseModel):
    """The body of `POST /run`; files are Base64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str | list[str]
    stdin: str = ""
    files: dict[str, Base64Bytes] = Field(default_factory=dict)
    limits: Limits = Limits()


class Judgement(BaseModel):
    """The body of `POST /judge`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    tests: CodeTests


class Service(ThreadingHTTPServer):
    """`workers` run at a time and `queue` wait; no limit of a request is above `most`."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], *, workers: int, queue: int, most: Limits, body_bytes: int
    ) -> None:
        super().__init__(address, Handler)
        self.backend = walled()
        self.places = threading.BoundedSemaphore(workers + queue)
        self.workers = threading.BoundedSemaphore(workers)
        self.most_connections = threading.active_count() + workers + queue + SPARE_CONNECTIONS
        self.most, self.body_bytes = most, body_bytes

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether one more connection may have a thread."""
        return threading.active_count() <= self.most_connections

    def answer(self, path: str, body: bytes) -> Outcome | Verdict:
        """Run what was asked; raises ValidationError and what a sandbox raises."""
        if path == "/run":
            program = Program.model_validate_json(body)
            with self.workers:
                return run_sandboxed(
                    program.code,
                    stdin=program.stdin,
                    files=program.files,
                    limits=lesser(program.limits, self.most),
                    backend=self.backend.name,
                )
        asked = Judgement.model_validate_json(body)
        limits = lesser(asked.tests.limits(), self.most)
        held = {"seconds": limits.seconds, "memory_mib": limits.memory_mib}
        with self.workers:
            return examine(asked.code, asked.tests.model_copy(update=held))


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Service
    timeout = SLOWEST_SECONDS

    def do_GET(self) -> None:
        """Health."""
        known = self.path == "/health"
        self.reply(200 if known else 404, {"backend": self.server.backend.name})

    def do_POST(self) -> None:
        """A question, if there is a place for it."""
        if self.path not in ("/run", "/judge"):
            return self.reply(404, {"error": "POST /run or /judge"})
        if not self.server.places.acquire(blocking=False):
            return self.reply(429, {"error": "the queue is full"})
        try:
            return self.reply(*self.served())
        finally:
            self.server.places.release()

    def served(self) -> tuple[int, Any]:
        """Status and answer."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            return 411, {"error": "how long is it?"}
        if int(length) > self.server.body_bytes:
            return 413, self.too_large(int(length))
        body = self.rfile.read(int(length))
        try:
            return 200, self.server.answer(self.path, body)._asdict()
        except (ValidationError, ConfigError, ValueError) as error:
            return 400, {"error": str(error)[:2000]}
        except (TransientError, OSError) as error:
            return 503, {"error": str(error)[:2000]}

    def too_large(self, length: int) -> dict[str, Any]:
        """An answer like any other. The request is read, else its sender would never see it."""
        left = min(length, 8 * self.server.body_bytes)
        while left > 0 and (part := self.rfile.read(min(left, 1 << 16))):
            left -= len(part)
        why = f"the request has {length} bytes, the service takes {self.server.body_bytes}"
        if self.path == "/judge":
            return Verdict("error", why, 0.0)._asdict()
        return Outcome("error", None, "", why, 0.0)._asdict()

    def reply(self, status: int, answer: Any) -> None:
        """Send an answer, to one who may be gone."""
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """A request is no news."""


def lesser(asked: Limits, most: Limits) -> Limits:
    """The lower of each limit."""
    return Limits.model_validate(
        {name: min(getattr(asked, name), getattr(most, name)) for name in Limits.model_fields}
    )


def walled() -> Backend:
    """The backend of this pod; ConfigError where it has no walls."""
    found = backend_of()
    if isinstance(found, Backend) and found.walls:
        return found
    raise ConfigError(
        Fault(
            "a sandbox service needs walls of its own",
            f"{CHOICE}={os.environ.get(CHOICE, '')}",
            "`limits` has none, and an address is that of another service",
            f"unset {CHOICE}, or name a backend with walls",
        )
    )


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM, then finish what is in; raises ConfigError without walls."""
    parser = Parser(prog="posttrain sandbox", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one [8080]")
    parser.add_argument("--workers", type=int, default=cores(), help="programs at a time [cores]")
    parser.add_argument("--queue", type=int, default=32, help="those that may wait [32]")
    parser.add_argument("--seconds", type=float, default=30.0, help="most of a program [30]")
    parser.add_argument("--memory-mib", type=int, default=512, help="most of a process [512]")
    parser.add_argument("--body-mib", type=int, default=4, help="longest request [4]")
    given = parser.parse_args(list(argv))
    try:
        service = Service(
            (given.host, given.port),
            workers=given.workers,
            queue=given.queue,
            most=Limits(seconds=given.seconds, memory_mib=given.memory_mib),
            body_bytes=given.body_mib << 20,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            Fault(
                "the service cannot start", "posttrain sandbox", str(error), "posttrain sandbox -h"
            )
        ) from error
    # Nobody of our user is to read our memory or environment.
    kernel.dumpable(False)

    def finish(number: int, frame: object) -> None:
        threading.Thread(target=service.shutdown).start()

    signal.signal(signal.SIGTERM, finish)
    port = service.server_address[1]
    print(f"{service.backend.name} on {given.host}:{port}", file=sys.stderr, flush=True)
    service.serve_forever()
    service.server_close()
    return 0
