"""A tree of processes: who is in it, what memory it holds, and its end."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE_SECONDS = 2.0


def descendants(root: int) -> list[int]:
    """Ids of the processes below one, parents first; from /proc."""
    found = [root]
    for pid in found:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            for task in tasks:
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found[1:]


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that the processes hold; what they share counts for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
    return total


def threads(pids: Iterable[int]) -> int:
    """How many threads the processes have."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/task"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def written(folder: str) -> int:
    """Bytes that files below a folder take, a page at least for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += max(page, os.lstat(f"{place}/{name}").st_blocks * 512)
    return total


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it, and wait until they are gone.

    Those below go first: the first process of a namespace takes the others along, and its own
    parent, which waits for it, then reaps it.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        below = descendants(process.pid)
        for pid in below:
            kill(pid)
        if not below:
            kill(process.pid)
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    kill(process.pid)
    process.wait()


def kill(pid: int) -> None:
    """SIGKILL, to a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
