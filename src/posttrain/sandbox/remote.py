"""The client of a sandbox service (`posttrain sandbox`), which runs code in a pod of its own.

A service that is busy is waited for, one that is away is tried again and then told as transient.
What cannot be read as an answer is none: it is asked for again, and never counts as a verdict.
"""

import http.client
import json
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from posttrain.errors import ConfigError, Fault, TransientError

BUSY_SECONDS = 600.0
"""How long to knock at a service whose queue is full (assumed)."""
AWAY_SECONDS = 60.0
"""How long to try one that does not answer: a pod starts in less (assumed)."""
QUEUE_SECONDS = 300.0
"""How long a request may wait in the queue, besides its own limit (assumed)."""
REACH_SECONDS = 3.0
LONGEST_PAUSE = 5.0
LONGEST_ANSWER = 1 << 24

Answer = TypeVar("Answer")
_pauses = random.Random()


class Reply(NamedTuple):
    """Status 0: there was none, and `body` says why."""

    status: int
    body: bytes


class Service(NamedTuple):
    """A sandbox service by its address, as POSTTRAIN_SANDBOX names it."""

    address: str

    def ask(self, path: str, body: Mapping[str, Any], kind: type[Answer], seconds: float) -> Answer:
        """The answer to a question that takes up to `seconds`.

        Raises ConfigError where the service says that the question is wrong, TransientError where
        it stays away or busy.
        """
        data = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        answers = TypeAdapter(kind)
        began = time.monotonic()
        away = None
        pause = 0.1
        while True:
            reply = self.exchange("POST", path, data, seconds + QUEUE_SECONDS)
            now = time.monotonic()
            why = f"status {reply.status}: {reply.body[:300].decode(errors='replace')}"
            if reply.status in (200, 413):
                try:
                    return answers.validate_json(reply.body)
                except ValidationError as error:
                    why = f"a malformed answer: {error}"
            elif reply.status in (400, 404, 411):
                raise ConfigError(
                    Fault(
                        "a question to the sandbox service is wrong",
                        self.address + path,
                        why,
                        "if it reads well, client and service differ in version",
                    )
                )
            away = None if reply.status == 429 else away or now
            if now - (away or now) > AWAY_SECONDS or (not away and now - began > BUSY_SECONDS):
                raise TransientError(self.fault(why))
            time.sleep(pause * _pauses.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    def reach(self, patience: float) -> None:
        """TransientError if the service is not well within `patience` seconds."""
        until = time.monotonic() + patience
        while (reply := self.exchange("GET", "/health", b"", REACH_SECONDS)).status != 200:
            if time.monotonic() >= until:
                why = reply.body[:300].decode(errors="replace")
                raise TransientError(self.fault(f"status {reply.status}: {why}"))
            time.sleep(1.0)

    def fault(self, why: str) -> Fault:
        """What a reader should know of a service that does not do its work."""
        return Fault(
            "the sandbox service does not answer",
            f"POSTTRAIN_SANDBOX={self.address}",
            why.removeprefix("status 0: "),
            "start it (`posttrain sandbox`, k8s/base/sandbox.yaml), let this pod talk to it, or"
            " unset POSTTRAIN_SANDBOX to run code on this machine",
        )

    def exchange(self, method: str, path: str, data: bytes, seconds: float) -> Reply:
        """One request on a connection of its own, so that a Service spreads them over pods."""
        parts = urlsplit(self.address)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            connection = kind(parts.netloc, timeout=seconds)
            try:
                headers = {"Content-Type": "application/json"}
                connection.request(method, parts.path.rstrip("/") + path, data, headers)
                response = connection.getresponse()
                return Reply(response.status, response.read(LONGEST_ANSWER))
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return Reply(0, f"{type(error).__name__}: {error}".encode())
