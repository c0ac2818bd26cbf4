"""A server that answers JSON over HTTP, asked with patience: what engines and judges share.

A key is read from the environment when a question is sent, and kept nowhere: neither messages nor
what this object looks like in a log hold it.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPException, HTTPResponse
from threading import Event
from typing import IO, Any, NamedTuple

from posttrain.errors import ConfigError, Fault, TransientError

BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same question may get a better one."""

FIRST_WAIT_SECONDS = 0.5
"""Before the first retry; doubles each time."""

LONGEST_WAIT_SECONDS = 60.0
"""However long a server asks us to wait (assumed)."""

PIECE = 65536


class Unanswered(TransientError):  # noqa: N818 - reads as what became of the question
    """No whole answer came; `outcome` says why: `away`, `busy`, `malformed` or `huge`."""

    def __init__(self, outcome: str, fault: Fault) -> None:
        super().__init__(fault)
        self.outcome = outcome


class HugeAnswerError(ValueError):
    """More bytes than anybody asked for."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the key would go to whoever it names."""

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class Server(NamedTuple):
    """Where to ask, how long to wait for an answer, and how often to ask again.

    `key_variable`: the environment variable that holds the key, if one is needed; an answer of more
    than `most_bytes` is not read to its end.
    """

    url: str
    timeout_seconds: float
    retries: int
    name: str = "vLLM server"
    key_variable: str = ""
    most_bytes: int = 2**28

    def ask(
        self, path: str, body: dict[str, Any] | None = None, stopped: Event | None = None
    ) -> list[Any]:
        """The JSON answer to `body`, or the parts of a streamed one until `stopped` is set.

        Raises ConfigError on a refusal, and Unanswered when there is no whole answer.
        """
        for attempt in range(self.retries + 1):
            wait = FIRST_WAIT_SECONDS * 2**attempt
            try:
                return list(self._parts(path, body, stopped))
            except urllib.error.HTTPError as error:
                outcome, failure = "busy", f"HTTP {error.code}: {self._told(error)}"
                if error.code not in BUSY:
                    mend = "look at the server's log, its model's name and its longest prompt"
                    raise ConfigError(
                        Fault(f"the {self.name} refused", self.url + path, failure, mend)
                    ) from None
                wait = max(wait, asked_wait(error.headers.get("Retry-After")))
            except HugeAnswerError as error:
                outcome, failure = "huge", str(error)
            except (OSError, HTTPException) as error:
                outcome, failure = "away", str(error) or type(error).__name__
            except (ValueError, RecursionError) as error:
                outcome, failure = "malformed", f"not JSON: {type(error).__name__}: {error}"[:300]
            if stopped is not None and stopped.is_set():
                return []
            if attempt < self.retries:
                time.sleep(min(wait, LONGEST_WAIT_SECONDS))
        raise Unanswered(
            outcome,
            Fault(
                f"the {self.name} does not answer",
                self.url + path,
                f"asked {self.retries + 1} times; the last time: {failure}",
                "start it, or raise `timeout_seconds` or `retries`",
            ),
        )

    def _parts(
        self, path: str, body: dict[str, Any] | None, stopped: Event | None
    ) -> Iterator[Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        opener = urllib.request.build_opener(NoRedirect)
        with opener.open(request, timeout=self.timeout_seconds) as answer:
            if not (body or {}).get("stream"):
                yield json.loads(self._whole(answer))
                return
            for line in answer:
                if stopped is not None and stopped.is_set():
                    return
                _, marked, text = line.partition(b"data: ")
                if text.strip() == b"[DONE]":
                    return
                if marked:
                    yield json.loads(text)
            raise ConnectionError("the stream broke off")

    def _whole(self, answer: HTTPResponse) -> bytes:
        """All of an answer; a server that drips does not outlast the time limit."""
        ends = time.monotonic() + self.timeout_seconds
        held = bytearray()
        while piece := answer.read1(PIECE):
            held += piece
            if len(held) > self.most_bytes:
                raise HugeAnswerError(f"an answer of more than {self.most_bytes} bytes")
            if time.monotonic() > ends:
                raise TimeoutError("timed out while it was answering")
        return bytes(held)

    def _told(self, error: urllib.error.HTTPError) -> str:
        """What a server says of a failure, without the key that some repeat."""
        try:
            told = error.read(2000).decode(errors="replace")
        except (OSError, HTTPException):
            told = ""
        key = self._key()
        return (told.replace(key, "***") if key else told)[:300]

    def _key(self) -> str:
        return os.environ.get(self.key_variable, "") if self.key_variable else ""


def asked_wait(told: str | None) -> float:
    """The seconds of a `Retry-After`; 0 where it gives none."""
    return float(told) if told and told.strip().isdecimal() else 0.0
