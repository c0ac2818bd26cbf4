"""One short message on what the gate said, to a webhook such as Slack's.

The address is a secret: it stands in no option, manifest or log, and what is told of a failure
never holds it.
"""

import html
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from posttrain.gate.comparison import Comparison
from posttrain.gate.verdict import Verdict

TRIES = 3
TIMEOUT_SECONDS = 5.0
PAUSE_SECONDS = 0.5
SHOWN = 8
"""Suites and reasons in the text; the JSON beside it holds every suite."""
SIGNS = {"pass": "✓", "fail": "✕", "investigate": "?"}
LOCAL = ("localhost", "127.0.0.1", "::1")


def tell(verdict: Verdict, model: str, registry_uri: str, variable: str, url: str | None) -> str:
    """Send the message and return a line on it; never raises for the receiver's fault."""
    if not url:
        return f"webhook: {variable} is not set, nobody was told\n"
    trouble = post(url, message(verdict, model, links(registry_uri, model)))
    if trouble:
        return f"webhook: the message to {variable} was not taken ({trouble}); the verdict stands\n"
    return f"webhook: told {variable}\n"


def message(verdict: Verdict, model: str, where: Mapping[str, str]) -> dict[str, Any]:
    """The verdict, the effect on every suite with its interval, links, and all that as `text`."""
    ranked = sorted(verdict.suites, key=lambda c: (c.suite not in verdict.primary, c.p_holm))
    lines = [
        f"{SIGNS[verdict.verdict]} {verdict.verdict.upper()}: {model} {verdict.policy[:12]},"
        f" {'promoted' if verdict.promoted else 'not promoted'} ({verdict.promotion})",
        *(f"• {reason}" for reason in verdict.reasons[:SHOWN]),
        *(_effect(c) for c in ranked[:SHOWN]),
        *(f"{name}: {link}" for name, link in where.items()),
    ]
    return {
        "text": html.escape("\n".join(lines), quote=False),
        "verdict": verdict.verdict,
        "promoted": verdict.promoted,
        "promotion": verdict.promotion,
        "reasons": verdict.reasons,
        "model": model,
        "policy": verdict.policy,
        "opponent": verdict.baseline.policy,
        "suites": {
            c.suite: c.model_dump(include={"n", "difference", "low", "high", "p_holm"})
            for c in ranked
        },
        "links": dict(where),
    }


def _effect(c: Comparison) -> str:
    interval = f"{100 * c.low:+.1f} to {100 * c.high:+.1f}"
    return f"{c.suite}: {100 * c.difference:+.1f} points, 95% interval {interval}, {c.n} items"


def links(registry_uri: str, model: str) -> dict[str, str]:
    """Pages of the registry where it is a server, without a password that its address may hold."""
    parts = urllib.parse.urlsplit(registry_uri)
    if parts.scheme not in ("http", "https"):
        return {}
    place = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
    home = f"{parts.scheme}://{place}/#"
    return {
        "model": f"{home}/models/{urllib.parse.quote(model)}",
        "experiments": f"{home}/experiments",
    }


def post(url: str, content: Mapping[str, Any]) -> str:
    """Send JSON; return why it was not taken, or nothing.

    Tried again when the receiver is away or busy, not when it refuses. Only TLS may carry the
    address to another machine.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        body = json.dumps(content, allow_nan=False).encode()
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
            return "it holds no https address"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    except ValueError:
        return "it holds no https address"
    trouble = ""
    for turn in range(TRIES):
        time.sleep(PAUSE_SECONDS * turn)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            trouble = f"HTTP {error.code}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The texts of these may quote the address.
            reason = getattr(error, "reason", error)
            trouble = getattr(reason, "strerror", None) or type(reason).__name__
    return trouble
