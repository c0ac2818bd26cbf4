"""Values between the process of an answer and that of its tests: plain data, or a handle.

The tests' side builds only plain built-in values of what it reads, whatever was sent: an object
whose `==` says yes to everything arrives as a `Handle`, which equals nothing but itself.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import islice

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

LONGEST = 1 << 24
"""Bytes of a message; a longer one counts as a broken channel."""
MOST_ITEMS = 100_000
"""Elements taken of an iterator; an endless one is cut there."""


class BrokenChannel(BaseException):
    """The other side is gone or talks nonsense. No `except Exception` of a test may hide it."""


class Channel:
    """Messages over two pipes: 4 bytes of length, then JSON."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self.broken = ""

    def send(self, message: Any) -> None:
        """Send one message."""
        data = json.dumps(message).encode()
        whole = memoryview(len(data).to_bytes(4) + data)
        try:
            while whole:
                whole = whole[os.write(self._write, whole) :]
        except OSError as error:
            self._fail(f"the other side is gone: {error}")

    def receive(self) -> Any:
        """The next message."""
        length = int.from_bytes(self._take(4))
        if length > LONGEST:
            self._fail(f"a message of {length} bytes")
        try:
            return json.loads(self._take(length))
        except (ValueError, RecursionError) as error:
            self._fail(f"a malformed message: {error}")

    def _take(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self._read, min(size - len(parts), 1 << 16))
            if not part:
                self._fail("the process of the answer ended before the tests did")
            parts += part
        return bytes(parts)

    def _fail(self, why: str) -> NoReturn:
        self.broken = self.broken or why
        raise BrokenChannel(why)


def encode(value: Any, handle: Callable[[Any], Any]) -> Any:
    """JSON of a value; `handle(value)` where it is not plain data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        # Text of base 10 has a limit on its length, and JSON is text of base 10.
        small = abs(value) < 1 << 53
        return int(value) if small else ["int", hex(value)]
    if isinstance(value, float):
        return float(value)
    for name, kind in (("list", list), ("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, kind):
            return [name, [encode(each, handle) for each in value]]
    if isinstance(value, dict):
        pairs = [(encode(k, handle), encode(v, handle)) for k, v in value.items()]
        return ["dict", pairs]
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, range):
        return ["range", *map(hex, (value.start, value.stop, value.step))]
    if isinstance(value, number_types()):
        return [type(value).__name__, str(value)]
    if hasattr(type(value), "__next__"):
        return ["iterator", [encode(each, handle) for each in islice(value, MOST_ITEMS)]]
    return handle(value)


def number_types() -> tuple[type, ...]:
    """Decimal and Fraction, where somebody has imported them: each takes long."""
    modules = (sys.modules.get("decimal"), sys.modules.get("fractions"))
    return tuple(
        getattr(module, name)
        for module, name in zip(modules, ("Decimal", "Fraction"), strict=True)
        if module
    )


def exact(name: str, text: str) -> Any:
    """A Decimal or a Fraction."""
    module = __import__("decimal" if name == "Decimal" else "fractions")
    return getattr(module, name)(text)


def decode(data: Any, handle: Callable[[int], Any]) -> Any:
    """The value of JSON; `handle(number)` for what stayed on the other side."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("an object where a value was due")
        return data
    kind, *rest = data
    if kind == "handle":
        return handle(int(rest[0]))
    if kind == "dict":
        return {decode(k, handle): decode(v, handle) for k, v in rest[0]}
    if kind in ("list", "tuple", "set", "frozenset", "iterator"):
        return _COLLECTIONS[kind](decode(each, handle) for each in rest[0])
    return _SCALARS[kind](*rest)


_COLLECTIONS: dict[str, Callable[[Iterable[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "iterator": lambda values: iter(list(values)),
}
_SCALARS: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "complex": complex,
    "range": lambda *ends: range(*(int(end, 16) for end in ends)),
    "Fraction": lambda text: exact("Fraction", text),
    "Decimal": lambda text: exact("Decimal", text),
}
