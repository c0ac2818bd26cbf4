"""The side of the answer: run its code, then do what the tests ask of its names.

Nothing here is trusted: the answer's code may change all of it. What the tests expect never
comes to this process.
"""

from __future__ import annotations

import os
import sys

from . import wire

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    import types
    from typing import Any


def run(spec: dict[str, Any]) -> None:
    """Answer requests until the tests close their end."""
    code = spec["code"]
    channel = wire.Channel(*spec["pipes"])
    kept: dict[int, Any] = {}

    def keep(value: Any) -> Any:
        kept[len(kept)] = value
        return ["handle", len(kept) - 1]

    module = type(sys)("answer")
    sys.modules["answer"] = module
    reply(channel, lambda: exec(compile(code, "answer.py", "exec"), module.__dict__), keep)
    while True:
        try:
            what, *rest = channel.receive()
        except wire.BrokenChannel:
            os._exit(0)
        asked = [wire.decode(each, kept.__getitem__) for each in rest]
        reply(channel, lambda w=what, a=asked: perform(module, w, a), keep)


def reply(channel: wire.Channel, work: Any, keep: Any) -> None:
    """Send the result, or the name and text of what was raised."""
    try:
        channel.send(["value", wire.encode(work(), keep)])
    except wire.BrokenChannel:
        os._exit(0)
    except BaseException as error:  # the tests must learn of it, whatever it is
        channel.send(["raised", type(error).__name__, str(error)[:2000]])


def perform(module: types.ModuleType, what: str, asked: list[Any]) -> Any:
    """One request: a name, an attribute, or a call, which also tells the arguments afterwards."""
    if what == "name":
        if asked[0] not in module.__dict__:
            raise NameError(f"name '{asked[0]}' is not defined")
        return module.__dict__[asked[0]]
    if what == "attribute":
        return getattr(asked[0], asked[1])
    if what == "set":
        return setattr(asked[0], asked[1], asked[2])
    target, arguments, named = asked
    result = target(*arguments, **named)
    return (result, arguments, named)
