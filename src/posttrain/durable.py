"""Durable changes of the disk: what the machine loses when it goes down is never half of a thing.

Content first, then the name by which it is found; each of them on disk before the next.
"""

import os
import shutil
from pathlib import Path


def synced(path: Path) -> None:
    """Have the content of a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def settle(folder: Path) -> None:
    """Have a folder and all that it holds on disk, before anything says that it is complete."""
    for path in folder.rglob("*"):
        synced(path)
    synced(folder)


def rename(source: Path, target: Path) -> None:
    """Rename what is on disk, and have the new name on disk too."""
    source.replace(target)
    synced(target.parent)


def discard(folder: Path) -> None:
    """Delete a folder if it is there, and what is left of others that had its name.

    It loses its name first: half of it must not be taken for the whole.
    """
    if folder.is_dir():
        folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}.discarded"))
    for left in folder.parent.glob(f".{folder.name}.[0-9]*.discarded"):
        shutil.rmtree(left)


def link_or_copy(source: str, target: str) -> None:
    """A second name for what is on disk, or a copy on disk where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        synced(Path(target))
