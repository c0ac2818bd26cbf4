"""Walls for a process that shares our user and all our namespaces, as in a restricted pod.

Landlock withholds files, a filter of system calls the rest. The program is one process: it starts
no other, so that nothing can outlive it. What it writes lies flat in its folder and stays there, so
that it can be counted and cleared away.
"""

from __future__ import annotations

import os
from errno import EAGAIN, ENOSYS, EPERM

from . import calls, landlock

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Iterable

NICE = 5
"""Those who watch share the processors with the programs, and must get their turn (assumed)."""

READ = landlock.READ | landlock.LIST | landlock.EXECUTE
OWN = (
    landlock.READ | landlock.LIST | landlock.WRITE | landlock.TRUNCATE
    | landlock.MAKE_FILE | landlock.MAKE_LINK
)  # fmt: skip
DEVICES = {
    "/dev/null": landlock.READ | landlock.WRITE,
    "/dev/zero": landlock.READ,
    "/dev/random": landlock.READ,
    "/dev/urandom": landlock.READ,
}

REFUSED = {
    # Other processes of the user.
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "tkill": (200, 130),
    # Sockets, and what else reaches over the machine.
    "accept": (43, 202),
    "accept4": (288, 242),
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
    "socket": (41, 198),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    # What belongs to a file beside its content, which Landlock leaves open.
    "chmod": (90, calls.ABSENT),
    "chown": (92, calls.ABSENT),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, calls.ABSENT),
    "lchown": (94, calls.ABSENT),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "truncate": (76, 45),
    "utime": (132, calls.ABSENT),
    "utimensat": (280, 88),
    "utimes": (235, calls.ABSENT),
    "fanotify_init": (300, 262),
    "inotify_add_watch": (254, 27),
    "inotify_init": (253, calls.ABSENT),
    "inotify_init1": (294, 26),
    # What is counted for a user or a machine, and not for a process.
    "io_setup": (206, 0),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "timer_create": (222, 107),
    # Starts a process.
    "fork": (57, calls.ABSENT),
    "vfork": (58, calls.ABSENT),
}
"""Refused besides those of `calls`; numbers on x86_64 and aarch64."""

_WHOLE = 0xFFFFFFFF
_UNIX, _STREAM = 1, 1
_THREAD, _NAMESPACES = 0x00010000, 0x7E020000
_DEATH_SIGNAL = 1
_OWNERS_AND_LEASES = (8, 15, 1024)  # F_SETOWN, F_SETOWN_EX, F_SETLEASE
_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_ACCESS, _TRUNCATE, _NAMELESS = 0o3, 0o1000, 0o20000000


def only(argument: int, value: int, mask: int = _WHOLE) -> calls.Test:
    """The argument must be this."""
    return (argument, mask, value, True)


def never(argument: int, value: int, mask: int = _WHOLE) -> calls.Test:
    """The argument must not be this."""
    return (argument, mask, value, False)


def opens(flags: int) -> list[calls.Test]:
    """Of opening a file: no file that does not lie in the folder; and what Landlock before version
    3 would let by, emptying a file that is not opened to write."""
    return [
        only(flags, 0, _NAMELESS),
        never(flags, _TRUNCATE, _ACCESS | _TRUNCATE),
        never(flags, _ACCESS, _ACCESS),
    ]


def rules(own: int) -> dict[str, calls.Rule]:
    """Calls that are allowed now and then, for a process whose id is `own`."""
    return {
        "kill": ((62, 129), [only(0, own)], EPERM),
        "tgkill": ((234, 131), [only(0, own)], EPERM),
        "prlimit64": ((302, 261), [only(0, 0)], EPERM),
        "prctl": ((157, 167), [never(0, _DEATH_SIGNAL)], EPERM),
        "fcntl": ((72, 25), [never(1, each) for each in _OWNERS_AND_LEASES], EPERM),
        "ioctl": ((16, 29), [never(1, each) for each in _OWNERS], EPERM),
        "socketpair": ((53, 199), [only(0, _UNIX), only(1, _STREAM, 0xF)], EPERM),
        "open": ((2, calls.ABSENT), opens(1), EPERM),
        "openat": ((257, 56), opens(2), EPERM),
        "clone": ((56, 220), [only(0, _THREAD, _THREAD | _NAMESPACES)], EAGAIN),
        # Their arguments lie in memory, where a filter cannot look; libraries then take the others.
        "clone3": ((435, 435), [], ENOSYS),
        "openat2": ((437, 437), [], ENOSYS),
    }


def wall_in(folder: str, shown: Iterable[str]) -> None:
    """Leave this process its folder, and to read what is shown; OSError where that cannot be."""
    if not calls.known():
        raise OSError(f"no filter of system calls is known for {os.uname().machine}")
    os.nice(NICE)
    landlock.restrict([*((path, READ) for path in shown), *DEVICES.items(), (folder, OWN)])
    calls.refuse(REFUSED, rules(os.getpid()).values())
