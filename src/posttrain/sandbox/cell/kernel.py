"""The Linux calls that Python's `os` lacks."""

import ctypes
import os

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

NOSUID, NODEV, BIND, RECURSIVE, PRIVATE = 2, 4, 4096, 16384, 1 << 18
READ_ONLY_ATTRIBUTE, NOSUID_ATTRIBUTE = 1, 2
DETACH = 2

_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 4, 36, 38
# One number on every architecture for each call younger than 2018; pivot_root is older.
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_HERE, _AT_RECURSIVE = -100, 0x8000
_CAPABILITIES_VERSION = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError with the kernel's reason for a result below zero."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    check(libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    values = [value.encode() or None for value in (source, target, kind)]
    done = libc.mount(*values, ctypes.c_ulong(flags), data.encode() or None)
    check(done, f"mount {target}")


def read_only(path: str, *, recursive: bool = True) -> None:
    """Nothing below a mount point can be written, whatever is mounted there (Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY_ATTRIBUTE | NOSUID_ATTRIBUTE, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    done = libc.syscall(_MOUNT_SETATTR, _HERE, path.encode(), flags, attributes, size)
    check(done, f"mount_setattr {path}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root and move the present one to `old`."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: no number known for {os.uname().machine}")
    check(libc.syscall(number, new.encode(), old.encode()), "pivot_root")


def detach(path: str) -> None:
    """Take a mount point and all below it out of sight."""
    check(libc.umount2(path.encode(), DETACH), f"umount {path}")


def die_with_parent() -> None:
    """Be killed when the process that forked this one is gone."""
    check(libc.prctl(_DEATH_SIGNAL, 9, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent is gone."""
    check(libc.prctl(_SUBREAPER, 1, 0, 0, 0), "prctl")


def dumpable(value: bool) -> None:
    """Whether processes of the same user may trace this one and read its memory."""
    check(libc.prctl(_DUMPABLE, int(value), 0, 0, 0), "prctl")


def drop_privileges() -> None:
    """No capability now, and none by executing a file."""
    check(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
