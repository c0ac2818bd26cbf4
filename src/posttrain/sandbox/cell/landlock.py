"""Landlock: what of the file system a process may touch, for itself and all it starts.

Linux 5.13, and no privilege. Numbers and structures as in the kernel's `linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import os

from .kernel import check, libc

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1

EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_FILE, MAKE_LINK, TRUNCATE = 1 << 8, 1 << 12, 1 << 14
_OF_A_FILE = EXECUTE | WRITE | READ | TRUNCATE

_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version -> every right on files that it knows of."""
_TCP, _TCP_SINCE = 0b11, 4
_OTHERS, _OTHERS_SINCE = 0b11, 6
"""Abstract sockets and signals of processes that are not behind the same wall."""


class _Handled(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """What the kernel offers; OSError where it has no Landlock, or has it turned off."""
    found: int = libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION)
    check(found, "landlock")
    return found


def restrict(allowed: Iterable[tuple[str, int]]) -> None:
    """Leave only the rights named, each on a path and all below it; needs no-new-privileges.

    Rights that the kernel does not know of are left out: it does not withhold them either.
    """
    number = version()
    every = max(rights for since, rights in _ALL.items() if since <= number)
    handled = _Handled(
        every, _TCP if number >= _TCP_SINCE else 0, _OTHERS if number >= _OTHERS_SINCE else 0
    )
    rules = libc.syscall(_CREATE, ctypes.byref(handled), ctypes.c_size_t(24), 0)
    check(rules, "landlock_create_ruleset")
    for path, rights in allowed:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        fitting = rights & every & (~0 if os.path.isdir(path) else _OF_A_FILE)
        beneath = _Beneath(fitting, place)
        done = libc.syscall(_ADD, rules, _PATH_BENEATH, ctypes.byref(beneath), 0)
        check(done, f"landlock_add_rule {path}")
        os.close(place)
    check(libc.syscall(_RESTRICT, rules, 0), "landlock_restrict_self")
    os.close(rules)
