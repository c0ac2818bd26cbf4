"""Inside: one process watches, its child takes on the limits and runs what came.

The watcher holds the status pipe, on which it says `ready`, then how the child ended; the child
never has it.
"""

from __future__ import annotations

import builtins
import marshal
import os
import resource
import sys

from . import alone, calls, enter, kernel

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

WORK = "/work"
KILL = 9


def main(ways: list[str]) -> None:
    """`ways`: `enter`, `stay` or `alone`, then the file descriptors of spec and status."""
    how, spec_pipe, status = ways[0], int(ways[1]), int(ways[2])
    with open(spec_pipe, "rb") as file:
        spec = marshal.load(file)
    # Loaded here, while their compiled form can be read and written.
    part = {"answer": "answering", "tests": "testing"}.get(spec["mode"])
    side = getattr(__import__(__package__, fromlist=[part]), part) if part else None
    try:
        if how == "alone":
            kernel.die_with_parent()
        (enter.enter if how == "enter" else watch)(spec, status)
        if how == "alone":
            kernel.die_with_parent()
    except OSError as error:
        os.write(status, f"fault {error}\n".encode())
        os._exit(1)
    settle(spec)
    if how == "alone":
        alone.wall_in(spec["folder"], spec["paths"].values())
    run(spec, side)


def watch(spec: dict[str, Any], status: int) -> None:
    """Returns in the child; the watcher reaps until the child is gone, then takes all along."""
    kernel.adopt_orphans()
    kernel.dumpable(False)
    kernel.drop_privileges()
    calls.refuse(calls.REFUSED)
    child = os.fork()
    if child == 0:
        os.close(status)
        os.setsid()
        return
    for number in {0, 1, 2, *spec["pipes"]}:
        os.close(number)
    os.write(status, b"ready\n")
    code = 0
    while True:
        gone, code = os.wait()
        if gone == child:
            break
    if os.getpid() != 1:
        end_descendants()
    os.write(status, f"end {os.waitstatus_to_exitcode(code)}\n".encode())
    os._exit(0)


def end_descendants() -> None:
    """Kill and reap whatever is left; the kernel does it where the watcher is process 1."""
    while True:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), KILL)
            os.wait()
        except (ChildProcessError, FileNotFoundError):
            return


def settle(spec: dict[str, Any]) -> None:
    """Take on the limits, and write the files."""
    for name, value in spec["rlimits"].items():
        resource.setrlimit(getattr(resource, name), value)
    os.umask(0o077)
    os.chdir(spec.get("folder") or WORK)
    os.environ["HOME"] = os.getcwd()
    for path, content in spec["files"].items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def run(spec: dict[str, Any], side: Any) -> None:
    """Run the code in this very process."""
    if spec["mode"] == "command":
        execute(spec["argv"])
    # `site` would have set these, and everything else that is installed.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    if side:
        side.run(spec)
    else:
        script(spec["code"])


def execute(argv: list[str]) -> NoReturn:
    """Become another program."""
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error}\n")
        os._exit(127)


def script(code: str) -> None:
    """Run a program as `python FILE` would: its own `__main__`, traceback and exit code."""
    module = type(sys)("__main__")
    sys.modules["__main__"], sys.argv = module, ["program.py"]
    exec(compile(code, "program.py", "exec"), module.__dict__)
