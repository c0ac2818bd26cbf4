"""The side of the tests: run them on names that live in the answer's process.

The verdict is one line of JSON on the standard output that this process was given; what tests
print goes nowhere. No code of the answer runs here.
"""

from __future__ import annotations

import builtins
import json
import os

from . import wire

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from typing import Any


class Remote:
    """Something of the answer's that is not plain data."""

    def __init__(self, link: Link, number: int) -> None:
        self.__dict__.update(_link=link, _number=number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result, after, named_after = self._link.ask("call", self, list(arguments), named)
        for old, new in zip(arguments, after, strict=True):
            follow(old, new)
        for key, new in named_after.items():
            follow(named[key], new)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._link.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("set", self, name, value)


def follow(old: Any, new: Any) -> None:
    """What the answer did to an argument in its process is done to ours."""
    if type(old) is list and type(new) is list:
        old[:] = new
    elif type(old) in (dict, set) and type(new) is type(old):
        old.clear()
        old.update(new)


class Link:
    """Requests to the answer's process."""

    def __init__(self, channel: wire.Channel) -> None:
        self.channel = channel

    def ask(self, what: str, *asked: Any) -> Any:
        """The value of a request, or an exception like the one raised there."""
        self.channel.send([what, *(wire.encode(each, self._handle) for each in asked)])
        return self.answer()

    def answer(self) -> Any:
        """Read one reply; one that makes no sense breaks the channel for good."""
        try:
            kind, *rest = self.channel.receive()
            if kind == "raised":
                name, text = map(str, rest)
            else:
                return wire.decode(rest[0], lambda number: Remote(self, number))
        except Exception as error:
            self.channel.broken = f"a malformed reply: {type(error).__name__}"
            raise wire.BrokenChannel(self.channel.broken) from None
        found = getattr(builtins, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            try:
                raised = found(text)
            except TypeError:  # some exceptions want more than a text
                raised = RuntimeError(f"{name}: {text}")
            raise raised
        raise RuntimeError(f"{name}: {text}")

    def _handle(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return ["handle", value._number]
        raise TypeError(f"a {type(value).__name__} cannot be handed to the answer")


def run(spec: dict[str, Any]) -> None:
    """Run the tests and say how it went: passed, failed (an assertion) or error."""
    verdict = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    link = Link(wire.Channel(*spec["pipes"]))
    status, why = "passed", ""
    try:
        link.answer()
        scope: dict[str, Any] = {"__name__": "tests"}
        exec(compile(spec["before"], "before.py", "exec"), scope)
        scope.update({name: link.ask("name", name) for name in spec["names"]})
        exec(compile(spec["tests"], "tests.py", "exec"), scope)
    except AssertionError as error:
        status, why = "failed", str(error) or "an assertion does not hold"
    except BaseException as error:  # a verdict must come, whatever the tests raise
        status, why = "error", f"{type(error).__name__}: {error}"
    if link.channel.broken:
        status, why = "died", link.channel.broken
    line = json.dumps({"status": status, "why": why[:500]})
    os.write(verdict, f"{line}\n".encode())
    os._exit(0)
