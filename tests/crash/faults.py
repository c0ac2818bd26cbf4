"""What befalls a stage: at the k-th call of some kind the process does something to itself.

The patches live in the child that is going to suffer; the program under test knows nothing of
them. Calls are counted only where they touch the folder of the point, or the model at work.
"""

import builtins
import errno
import io
import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CALLS = ("write", "fsync", "rename", "link", "log", "progress", "forward", "step")
"""Opening a file for writing; fsync; rename; hard links of publishing; a line of curves; the end
of a batch; a forward pass (the middle of a generation or of a batch); a step of the optimiser."""

CGROUPS = Path("/sys/fs/cgroup/memory")
ROOM = 64 * 2**20
"""Bytes that a process may still take before the kernel kills it for want of memory."""


class Fault(NamedTuple):
    """`kind` happens at the `at`-th call of `call` (from 1); 0: never, calls are only counted."""

    kind: str
    call: str
    at: int


class Gauge:
    """Counts calls, knows what is on disk, and lets the fault happen."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self.fault, self.folder = fault, folder
        self.counts: Counter[str] = Counter()
        self.broken = 0
        self.durable: dict[int, tuple[int, int]] = {}
        self.names = {entry: set(os.listdir(entry)) for entry in [folder, *folder.iterdir()]}

    def called(self, call: str) -> None:
        """Count a call, and suffer the fault if it is the one; a full disk stays full."""
        self.counts[call] += 1
        if call == self.fault.call and self.counts[call] == self.fault.at:
            {
                "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
                "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
                "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
                "freeze": lambda: os.kill(os.getpid(), signal.SIGSTOP),
                "enospc": lambda: self._break(errno.ENOSPC),
                "erofs": lambda: self._break(errno.EROFS),
                "oom": outgrow_a_group,
                "exhaust": exhaust_memory,
                "power": lambda: self.lose_power(names=False),
                "power_names": lambda: self.lose_power(names=True),
            }[self.fault.kind]()
        if self.broken and call in ("write", "fsync", "rename", "link"):
            raise OSError(self.broken, os.strerror(self.broken), str(self.folder))

    def _break(self, number: int) -> None:
        self.broken = number

    def synced(self, path: Path) -> None:
        """Note what a completed fsync has made durable."""
        if path.is_dir():
            self.names[path] = set(os.listdir(path))
        elif path.is_file():
            about = path.stat()
            self.durable[about.st_ino] = (about.st_mtime_ns, about.st_size)

    def lose_power(self, *, names: bool) -> None:
        """The machine goes down with the process: bytes without fsync are gone, and so are, with
        `names`, the entries that no fsync of their folder has seen."""
        for place, folders, files in os.walk(self.folder, topdown=False):
            for path in (Path(place, name) for name in files):
                about = path.stat()
                changed, size = self.durable.get(about.st_ino, (0, 0))
                if changed != about.st_mtime_ns:
                    os.truncate(path, min(size, about.st_size))
            if names:
                for name in {*files, *folders} - self.names.get(Path(place), set()):
                    remove(Path(place, name))
        os.kill(os.getpid(), signal.SIGKILL)


def remove(path: Path) -> None:
    """Delete a file or a folder without the functions that are counted."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for inner in path.iterdir():
        remove(inner)
    path.rmdir()


def outgrow_a_group() -> None:
    """Move into a group with little room and take more, until the kernel kills this process."""
    group = Path(tempfile.mkdtemp(prefix="crash-", dir=CGROUPS))
    (group / "memory.limit_in_bytes").write_text(str(ROOM))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    exhaust_memory()


def exhaust_memory() -> None:
    """Take memory until whoever limits it kills this process; only where somebody does."""
    taken = []
    while True:
        taken.append(b"x" * 2**20)


def inject(fault: Fault, folder: Path) -> Gauge:
    """Patch this process; `gauge.counts` tells what was called."""
    gauge = Gauge(fault, folder)
    inside = f"{folder}/"

    def placed(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(inside)

    def around(module: Any, name: str, call: str, path: Callable[..., Any]) -> None:
        inner = getattr(module, name)

        def patched(*given: Any, **named: Any) -> Any:
            if placed(path(*given, **named)):
                gauge.called(call)
            return inner(*given, **named)

        setattr(module, name, patched)

    def opened(inner: Callable[..., Any]) -> Callable[..., Any]:
        def patched(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if set(mode) & set("wax+") and placed(file):
                gauge.called("write")
            return inner(file, mode, *given, **named)

        return patched

    io.open = builtins.open = opened(io.open)  # type: ignore[assignment]
    around(os, "rename", "rename", lambda source, target, **_: target)
    around(os, "replace", "rename", lambda source, target, **_: target)
    around(os, "link", "link", lambda source, target, **_: target)
    fsync = os.fsync

    def fsynced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if placed(path):
            gauge.called("fsync")
        fsync(descriptor)
        gauge.synced(path)

    os.fsync = fsynced  # type: ignore[assignment]
    inject_into_work(gauge)
    return gauge


def inject_into_work(gauge: Gauge) -> None:
    """Count what a stage does between its writes."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from transformers import Qwen3Model

    from posttrain.journal import Journal

    def before(owner: Any, name: str, call: str) -> None:
        inner = getattr(owner, name)

        def patched(self: Any, *given: Any, **named: Any) -> Any:
            gauge.called(call)
            return inner(self, *given, **named)

        setattr(owner, name, patched)

    before(Journal, "log", "log")
    before(Journal, "progress", "progress")
    before(Qwen3Model, "forward", "forward")
    register_optimizer_step_post_hook(lambda *_: gauge.called("step"))


def told(gauge: Gauge) -> str:
    """The counts as JSON."""
    return json.dumps(dict(gauge.counts))
