"""A sandbox: code that nobody has read, run outside our process and behind walls.

No network, no files but the interpreter's (read-only) and an empty work folder in memory, no
environment, no sight of other processes, and limits on everything; docs/security.md says what
holds and what does not.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from posttrain.errors import ConfigError, Fault, TransientError, accepted
from posttrain.sandbox.backends import BACKENDS, Backend
from posttrain.sandbox.limits import Limits, Outcome, Status
from posttrain.sandbox.running import started, watch

__all__ = ["Limits", "Outcome", "Status", "backend_of", "faults", "run_sandboxed"]

CHOICE = "POSTTRAIN_SANDBOX"
"""Names the backend of a machine. `limits` has no walls: it is for a pod made to be thrown away,
which is itself the wall."""

PROBE = (
    "import os, socket\n"
    "assert not os.path.exists('/proc/self') and not os.path.exists('/home')\n"
    "try: open('/harness/x', 'w')\n"
    "except OSError: pass\n"
    "else: raise SystemExit('the root can be written')\n"
    "try: socket.create_connection(('192.0.2.1', 9), 1)\n"
    "except OSError as error: assert error.errno == 101, error\n"
    "open('x', 'w').close(); print('inside')\n"
)
"""What must hold before a backend is trusted. 101: `network is unreachable`; the address is one
that nobody has (RFC 5737)."""


def run_sandboxed(
    code: str | Sequence[str],
    *,
    stdin: str = "",
    files: Mapping[str, str | bytes] = {},
    limits: Limits = Limits(),
    allow_unsafe: bool = False,
    backend: str = "",
) -> Outcome:
    """Run a Python program (text) or a command (words, the first an absolute path).

    `files` appear in the work folder. Raises ConfigError where no sandbox works and
    `allow_unsafe` is off, TransientError where one that works did not start.
    """
    if isinstance(code, str):
        job: dict[str, Any] = {"mode": "script", "code": code}
    else:
        job = {"mode": "command", "argv": list(code)}
    job["files"] = {
        inside(path): content.encode() if isinstance(content, str) else content
        for path, content in files.items()
    }
    chosen = BACKENDS[backend] if backend else backend_of(allow_unsafe=allow_unsafe)
    with started(chosen, job, limits, stdin=stdin.encode()) as running:
        return watch(running, limits)


def inside(path: str) -> str:
    """A path that stays in the work folder; ConfigError for another."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0] == "/":
        raise ConfigError(
            Fault(
                f"bad path `{path}`", "files of a sandbox", "it leaves the work folder", "no `..`"
            )
        )
    return path


def backend_of(*, allow_unsafe: bool = False) -> Backend:
    """The backend that the environment names, else the first with walls that works here.

    ConfigError where there is none and `allow_unsafe` is off.
    """
    named = os.environ.get(CHOICE, "")
    if named and not (why := why_not(named)):
        return BACKENDS[named]
    found = f"{named}: {why}" if named else first_working()
    if isinstance(found, Backend):
        return found
    if allow_unsafe:
        return BACKENDS["limits"]
    raise ConfigError(
        Fault(
            "no sandbox works on this machine",
            "posttrain.sandbox",
            found,
            "install bubblewrap 0.8 or later, or let users make namespaces"
            " (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces,"
            " kernel.apparmor_restrict_unprivileged_userns=0; in a pod, a seccomp profile that"
            " allows `unshare`); or, on a machine that can be thrown away, `allow_unsafe: true`",
        )
    )


def faults(*, allow_unsafe: bool = False) -> list[Fault]:
    """What a preflight should say about running code here."""
    try:
        backend_of(allow_unsafe=allow_unsafe)
    except ConfigError as error:
        return list(error.faults)
    return []


@functools.cache
def first_working() -> Backend | str:
    """A backend with walls that hold, else why none does.

    Root goes by plain namespaces first: bubblewrap could not become another user *and* see an
    interpreter in a home folder.
    """
    names = [name for name, backend in BACKENDS.items() if backend.walls]
    why = []
    for name in reversed(names) if os.geteuid() == 0 else names:
        reason = why_not(name)
        if not reason:
            return BACKENDS[name]
        why.append(f"{name}: {reason}")
    return "; ".join(why)


@functools.cache
def why_not(name: str) -> str:
    """Why a backend does not work here; empty if it does."""
    if name not in BACKENDS:
        raise ConfigError(
            Fault(f"unknown backend `{name}`", "posttrain.sandbox", "-", accepted(name, BACKENDS))
        )
    try:
        code = PROBE if BACKENDS[name].walls else "print('inside')"
        found = run_sandboxed(code, backend=name, limits=Limits(seconds=20))
    except TransientError as error:
        return error.faults[0].why
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except OSError as error:
        return str(error)
    return "" if found.stdout == "inside\n" else f"{found.status}: {found.stderr[-300:]}"
