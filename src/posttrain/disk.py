"""Locks, and what a full or read-only disk means to the user."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.errors import ConfigError, Fault, TransientError

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)

FULL = (f"os error {errno.ENOSPC}", "No space left", "unexpected pos", "PytorchStreamWriter failed")
"""How safetensors and torch, with error classes of their own, tell of bytes that had no room."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two runs of one key do the work once."""
    with mended_disk_at(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def mended_disk_at(where: Path) -> Iterator[None]:
    """Tell a full or read-only disk as what it is, not as a bug."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or where)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(place) from error
        if error.errno in UNWRITABLE:
            raise ConfigError(
                Fault("cannot write", place, os.strerror(error.errno), "give a writable path")
            ) from error
        raise
    except Exception as error:
        if any(words in str(error) for words in FULL):
            raise disk_full(str(where)) from error
        raise


def disk_full(place: str) -> TransientError:
    """A full disk: the work was sound, and its checkpoints stay for the next run."""
    why_ = os.strerror(errno.ENOSPC)
    return TransientError(Fault("disk full", place, why_, "free some room and run again"))
