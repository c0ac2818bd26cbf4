"""A filter before the kernel: system calls that no program of ours needs are refused.

A filter outlives fork and exec, cannot be taken off, and lies over those put before it.
"""

from __future__ import annotations

import ctypes
import os
from errno import EPERM

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Test = tuple[int, int, int, bool]
    """An argument's place, a mask, a value: the masked argument must be the value, or must not.
    Of an argument the lower 32 bits are read, all that the kernel takes of those tested here."""
    Rule = tuple[tuple[int, int], list[Test], int]
    """The numbers of a call, what must hold to let it pass, and else its errno."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's audit numbers; elsewhere there is no filter."""

ABSENT = -1
"""In place of a number, where an architecture lacks the call."""
REFUSED = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "request_key": (249, 218),
    "setns": (308, 268),
    "shmget": (29, 194),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
"""Numbers on x86_64 and aarch64. These calls trace, mount, reach other namespaces, load code into
the kernel, have had many of its holes, or hold memory that no limit counts."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_SET_SECCOMP, _FILTER = 22, 2


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def known() -> bool:
    """Whether the numbers of this machine's calls are known here."""
    return os.uname().machine in ARCHITECTURES


def refuse(names: Mapping[str, tuple[int, int]], rules: Iterable[Rule] = ()) -> None:
    """Put a filter before this process and all it starts; needs no-new-privileges."""
    if not known():
        return
    machine = os.uname().machine
    which = [*ARCHITECTURES].index(machine)
    numbers = [pair[which] for pair in names.values() if pair[which] != ABSENT]
    left = len(numbers)
    steps = [
        _Step(_LOAD, 0, 0, _ARCHITECTURE),
        _Step(_EQUAL, 1, 0, ARCHITECTURES[machine]),
        _Step(_RETURN, 0, 0, _KILL),
        _Step(_LOAD, 0, 0, _NUMBER),
        # The second set of numbers of x86_64, which would slip by the list.
        _Step(_AT_LEAST, 0, 1, _X32),
        _Step(_RETURN, 0, 0, _REFUSE | EPERM),
        *(step for rule in rules for step in _block(rule, which)),
        *(_Step(_EQUAL, left - place, 0, number) for place, number in enumerate(numbers)),
        _Step(_RETURN, 0, 0, _ALLOW),
        _Step(_RETURN, 0, 0, _REFUSE | EPERM),
    ]
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _block(rule: Rule, which: int) -> list[_Step]:
    """The steps of one rule; a call of another number jumps over them."""
    numbers, tests, errno = rule
    if numbers[which] == ABSENT:
        return []
    steps = []
    for place, (argument, mask, value, equal) in enumerate(tests):
        # Three steps for each test that is left, and the one that allows.
        fail = 3 * (len(tests) - place - 1) + 1
        steps += [
            _Step(_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
            _Step(_AND, 0, 0, mask),
            _Step(_EQUAL, *((0, fail) if equal else (fail, 0)), value),
        ]
    if tests:
        steps.append(_Step(_RETURN, 0, 0, _ALLOW))
    steps.append(_Step(_RETURN, 0, 0, _REFUSE | errno))
    return [_Step(_EQUAL, 0, len(steps), numbers[which]), *steps]
