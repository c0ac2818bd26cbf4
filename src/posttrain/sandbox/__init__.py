"""A sandbox: code that nobody has read, run outside our process and behind walls.

No network, no files but the interpreter's (read-only) and an empty work folder in memory, no
environment, no sight of other processes, and limits on everything; docs/security.md says what
holds and what does not.
"""

import base64
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from posttrain.errors import ConfigError, Fault, PosttrainError, TransientError, accepted
from posttrain.sandbox import remote
from posttrain.sandbox.backends import BACKENDS, Backend
from posttrain.sandbox.limits import Limits, Outcome, Status
from posttrain.sandbox.remote import Service
from posttrain.sandbox.running import started, watch

__all__ = ["Limits", "Outcome", "Status", "backend_of", "faults", "run_sandboxed", "service_named"]

CHOICE = "POSTTRAIN_SANDBOX"
"""Names the backend of a machine, or by an address (`http://...`) a service that runs code for it.
`limits` has no walls: it is for a pod made to be thrown away, which is itself the wall."""

PROBE = (
    "import os, socket\n"
    "for path in ('/proc/self/status', '/proc/1/environ', '/home', '/etc/passwd'):\n"
    "    try: os.listdir(path) if path == '/home' else open(path)\n"
    "    except OSError: continue\n"
    "    raise SystemExit(f'{path} can be read')\n"
    "for path in ('/harness', '/tmp', '/dev/shm', os.path.dirname(os.__file__)):\n"
    "    try: open(f'{path}/posttrain', 'w')\n"
    "    except OSError: continue\n"
    "    raise SystemExit(f'{path} can be written')\n"
    "try: socket.create_connection(('192.0.2.1', 9), 1)\n"
    "except OSError as error: assert error.errno in (1, 101), error\n"
    "else: raise SystemExit('the network is there')\n"
    "open('x', 'w').close(); print('inside')\n"
)
"""What must hold before a backend is trusted. 1 and 101: `not permitted`, `network is unreachable`;
the address is one that nobody has (RFC 5737)."""


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
    contents = {
        inside(path): content.encode() if isinstance(content, str) else content
        for path, content in files.items()
    }
    chosen = BACKENDS[backend] if backend else backend_of(allow_unsafe=allow_unsafe)
    if isinstance(chosen, Service):
        encoded = {path: base64.b64encode(each).decode() for path, each in contents.items()}
        body = {"code": code, "stdin": stdin, "files": encoded, "limits": limits.model_dump()}
        return chosen.ask("/run", body, Outcome, limits.seconds)
    if isinstance(code, str):
        job: dict[str, Any] = {"mode": "script", "code": code}
    else:
        job = {"mode": "command", "argv": list(code)}
    job["files"] = contents
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


def backend_of(*, allow_unsafe: bool = False, patient: bool = True) -> Backend | Service:
    """The backend or service that the environment names, else the first with walls that works here.

    ConfigError where there is none and `allow_unsafe` is off, TransientError where the service
    does not answer, at once or to one who is patient.
    """
    if address := service_named():
        return reached(address, patient)
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
            "install bubblewrap 0.8 or later, or take a kernel with Landlock turned on (Linux 5.13,"
            " `landlock` in /sys/kernel/security/lsm), or let users make namespaces"
            " (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces,"
            " kernel.apparmor_restrict_unprivileged_userns=0; in a pod, a seccomp profile that"
            " allows `unshare`); or, on a machine that can be thrown away, `allow_unsafe: true`",
        )
    )


def service_named() -> str:
    """The address of the service that is to run code; empty where this machine runs it."""
    named = os.environ.get(CHOICE, "")
    return named if named.startswith(("http://", "https://")) else ""


def faults(*, allow_unsafe: bool = False) -> list[Fault]:
    """What a preflight should say about running code here."""
    try:
        backend_of(allow_unsafe=allow_unsafe, patient=False)
    except PosttrainError as error:
        return list(error.faults)
    return []


@functools.cache
def reached(address: str, patient: bool) -> Service:
    """A service that has answered once; later it is the questions that tell."""
    service = Service(address)
    service.reach(remote.AWAY_SECONDS if patient else 0.0)
    return service


@functools.cache
def first_working() -> Backend | str:
    """A backend with walls that hold, else why none does.

    Root goes by plain namespaces first: bubblewrap could not become another user *and* see an
    interpreter in a home folder.
    """
    names = [name for name, backend in BACKENDS.items() if backend.walls]
    if os.geteuid() == 0:
        names.remove("namespaces")
        names.insert(0, "namespaces")
    why = []
    for name in names:
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
