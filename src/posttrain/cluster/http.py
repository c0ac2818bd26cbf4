"""Requests to an API server: JSON in and out, a token over TLS only, refusals told as faults.

Certificates are verified (a private CA: `SSL_CERT_FILE`).
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any

from posttrain.errors import ConfigError, Fault, PosttrainError, TransientError

TIMEOUT_SECONDS = 30.0
TRIES, PAUSE_SECONDS = 3, 1.0
LOCAL = ("localhost", "127.0.0.1", "::1")


class ConflictError(Exception):
    """The server has something of that name already (409)."""


class Server:
    """An API server and the token that it is asked with."""

    def __init__(self, host: str, token: str) -> None:
        url = urllib.parse.urlsplit(host)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(Fault(f"bad host `{host}`", "--host", "no URL", "give https://HOST"))
        if token and url.scheme == "http" and url.hostname not in LOCAL:
            why = "anyone on the way could read it"
            raise ConfigError(Fault("token without TLS", host, why, "use https://"))
        self.host = host
        self.token = token

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One JSON request, tried again while the server is away: the caller sees to it that
        twice is as good as once. Raises ConflictError where the thing is there already."""
        for left in range(TRIES - 1, -1, -1):
            try:
                return self._once(method, path, body)
            except TransientError:
                if not left:
                    raise
                time.sleep(PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        url = f"{self.host}{path}"
        try:
            with self._open(method, url, body, TIMEOUT_SECONDS) as answer:
                found = json.loads(answer.read() or b"{}")
        except json.JSONDecodeError:
            mend = "give the URL of the API server"
            raise ConfigError(Fault("no API server", url, "it did not answer JSON", mend)) from None
        except (OSError, HTTPException) as error:
            raise away(url, error) from None
        return found if isinstance(found, dict) else {}

    def lines(self, path: str) -> Iterator[str]:
        """The lines of an answer as they come, for as long as the server sends any."""
        url = f"{self.host}{path}"
        try:
            with self._open("GET", url, None, None) as answer:
                for line in answer:
                    yield line.decode(errors="replace").rstrip("\n")
        except (OSError, HTTPException) as error:
            raise away(url, error) from None

    def _open(
        self, method: str, url: str, body: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token.removeprefix('Bearer ')}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace") or str(error.reason)
            if error.code == 409:
                raise ConflictError(said) from None
            raise refusal(error.code, url, said) from None


def away(url: str, error: Exception) -> TransientError:
    """Nobody answers, or no longer."""
    cause = str(getattr(error, "reason", error))
    mend = "check --host, or the port-forward"
    return TransientError(Fault("cannot reach the server", url, cause, mend))


class AbsentError(ConfigError):
    """The server knows nothing of that name (404)."""


def refusal(code: int, url: str, said: str) -> PosttrainError:
    """What an HTTP status means to the user: their mistake, or the server's bad moment."""
    said = said[:300]
    if code in (401, 403):
        mend = "set the variable that --token-env names to a token of a user who may do this"
        return ConfigError(Fault(f"refused ({code})", url, said, mend))
    if code >= 500 or code == 429:
        return TransientError(Fault(f"the server answered {code}", url, said, "ask again later"))
    if code == 404:
        return AbsentError(Fault("not there", url, said, "check the name, --namespace and --host"))
    return ConfigError(Fault(f"the server answered {code}", url, said, "mend what it complains of"))


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return urllib.parse.quote(name, safe="")
