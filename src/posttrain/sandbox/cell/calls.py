"""A filter before the kernel: system calls that no program of ours needs are refused (EPERM).

They trace, mount, reach other namespaces, load code into the kernel, have had many of its holes, or
hold memory that no limit counts. A filter outlives fork and exec and cannot be taken off.
"""

import ctypes
import os

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's audit numbers; elsewhere there is no filter."""

REFUSED: dict[str, tuple[int, int]] = {
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
"""Numbers on x86_64 and aarch64."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NUMBER, _ARCHITECTURE = 0, 4
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


def refuse() -> None:
    """Put the filter before this process and all it starts; needs no-new-privileges."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return
    which = [*ARCHITECTURES].index(machine)
    numbers = [pair[which] for pair in REFUSED.values()]
    left = len(numbers)
    steps = [
        _Step(_LOAD, 0, 0, _ARCHITECTURE),
        _Step(_EQUAL, 1, 0, ARCHITECTURES[machine]),
        _Step(_RETURN, 0, 0, _KILL),
        _Step(_LOAD, 0, 0, _NUMBER),
        # The second set of numbers of x86_64, which would slip by the list.
        _Step(_AT_LEAST, left + 1, 0, _X32),
        *(_Step(_EQUAL, left - place, 0, number) for place, number in enumerate(numbers)),
        _Step(_RETURN, 0, 0, _ALLOW),
        _Step(_RETURN, 0, 0, _REFUSE),
    ]
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
