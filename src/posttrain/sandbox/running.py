"""Start a program behind a backend's walls, watch it, and end all of it."""

import contextlib
import marshal
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from posttrain.errors import Fault, TransientError
from posttrain.sandbox import processes
from posttrain.sandbox.backends import ENVIRONMENT, Backend, view
from posttrain.sandbox.limits import MIB, Limits, Outcome, Status

LOOK_SECONDS = 0.05
"""Between two looks at the memory of the whole tree (assumed)."""
DRAIN_SECONDS = 0.5
INODES = 4096


class Running(NamedTuple):
    """A started sandbox and the ends of its pipes that we hold."""

    backend: str
    process: subprocess.Popen[bytes]
    status: int
    outputs: tuple[int, ...]
    folder: str = ""


@contextlib.contextmanager
def started(
    backend: Backend,
    job: Mapping[str, Any],
    limits: Limits,
    *,
    stdin: bytes = b"",
    pipes: Sequence[int] = (),
    captured: bool = True,
) -> Iterator[Running]:
    """A sandbox that runs a job; on leaving, nothing of it is left.

    `job`: `mode` and what `cell.inside` needs for it. `pipes` are handed to the code; what is
    not `captured` of its output is dropped.
    """
    shown = view(*job.get("argv", ())[:1])
    with ExitStack() as stack:
        spec: dict[str, Any] = {"files": {}} | {
            **job,
            "pipes": list(pipes),
            "rlimits": limits.rlimits(),
            "paths": dict(shown.paths),
            "links": dict(shown.links),
            "disk": limits.disk_mib * MIB,
            "inodes": INODES,
        }
        if backend.shared:
            spec["folder"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="posttrain-"))
            # It counts all that the user runs on the whole machine, other pods included.
            del spec["rlimits"]["RLIMIT_NPROC"]
        spec_file = memory_file(stack, marshal.dumps(spec))
        input_file = memory_file(stack, stdin)
        ours, status = pipe(stack)
        out = [pipe(stack) for _ in range(2)] if captured else []
        process = subprocess.Popen(
            backend.command(shown, limits.disk_mib * MIB, spec_file, status),
            stdin=input_file,
            stdout=out[0][1] if out else subprocess.DEVNULL,
            stderr=out[1][1] if out else subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            pass_fds=[spec_file, status, *pipes],
            start_new_session=True,
            **backend.user,
        )
        for mine in (status, *(theirs for _, theirs in out)):
            os.close(mine)
        try:
            reads = tuple(reads for reads, _ in out)
            yield Running(backend.name, process, ours, reads, spec.get("folder", ""))
        finally:
            processes.end(process)


def pipe(stack: ExitStack) -> tuple[int, int]:
    """A pipe whose reading end is closed with the stack; the other one is the caller's."""
    reads, writes = os.pipe()
    stack.callback(os.close, reads)
    return reads, writes


def memory_file(stack: ExitStack, content: bytes) -> int:
    """A read-only file descriptor of a file in memory."""
    number = os.memfd_create("posttrain")
    try:
        with os.fdopen(number, "wb", closefd=False) as file:
            file.write(content)
        reads = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
    finally:
        os.close(number)
    stack.callback(os.close, reads)
    return reads


def watch(running: Running, limits: Limits, beside: Sequence[Running] = ()) -> Outcome:
    """Follow a sandbox to its end, and end it where it breaks a limit.

    Those `beside` it share its clock and are held to the same memory each.
    """
    begin = time.monotonic()
    taken: dict[int, bytearray] = {number: bytearray() for number in running.outputs}
    said = bytearray()
    broken: Status | None = None
    with selectors.DefaultSelector() as selector:
        for number in (running.status, *running.outputs):
            selector.register(number, selectors.EVENT_READ)
        looked = drained = begin
        while selector.get_map() and not broken:
            for key, _ in selector.select(LOOK_SECONDS):
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fd)
                taken.get(key.fd, said).extend(part)
            now = time.monotonic()
            if running.process.poll() is None:
                drained = now
            elif now - drained > DRAIN_SECONDS:
                break
            if sum(map(len, taken.values())) > limits.output_kib << 10:
                broken = "output"
            elif now - begin > limits.seconds:
                broken = "timeout"
            elif now - looked > LOOK_SECONDS:
                looked = now
                broken = exceeded((running, *beside), limits)
    processes.end(running.process)
    texts = [bytes(text[: limits.output_kib << 10]).decode(errors="replace") for text in
             taken.values()] or ["", ""]  # fmt: skip
    status, code = (broken, None) if broken else ending(running, said.decode(), texts[1])
    return Outcome(status, code, texts[0], texts[1], time.monotonic() - begin)


def exceeded(trees: Sequence[Running], limits: Limits) -> Status | None:
    """What to call it if one of the trees holds more than it may."""
    for each in trees:
        below = processes.descendants(each.process.pid)
        if processes.resident(below) > limits.memory_mib * MIB:
            return "memory"
        if each.folder and processes.threads(below) > limits.processes:
            return "killed"
        if each.folder and processes.written(each.folder) > limits.disk_mib * MIB:
            return "output"
    return None


def ending(running: Running, said: str, stderr: str) -> tuple[Status, int | None]:
    """Status and exit code by what the watcher said; TransientError where nothing ran."""
    lines = said.split("\n")
    ends = [int(line.split()[1]) for line in lines if line.startswith("end ")]
    if "ready" not in lines:
        why = " ".join(line for line in lines if line.startswith("fault ")) or stderr.strip()
        raise TransientError(
            Fault(
                "a sandbox did not start",
                f"posttrain.sandbox: {running.backend}",
                why.removeprefix("fault ")[-500:] or f"exit code {running.process.returncode}",
                "run again; if it stays, see docs/security.md",
            )
        )
    if not ends:
        return "killed", None
    code = ends[0]
    if code == 0:
        return "ok", 0
    if code == -24:  # SIGXCPU: the limit on processor time
        return "timeout", code
    last = stderr.rstrip().rpartition("\n")[2]
    if code > 0:
        return ("memory" if last.startswith("MemoryError") else "error"), code
    return "killed", code
