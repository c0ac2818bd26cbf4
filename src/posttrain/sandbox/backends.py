"""Ways into a sandbox. To add one, write the function and a line in BACKENDS.

A backend makes the command line that starts `cell` behind its walls.
"""

import functools
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Imported so that their compiled form stands ready: a sandbox can write none.
from posttrain.sandbox.cell import answering, inside, testing

CELL = Path(inside.__file__).parent
HARNESS = "/harness"
NOBODY = 65534
BOOT = (
    "import sys; sys.path.insert(0, {folder!r}); from cell import inside; del sys.path[0]; "
    "inside.main(sys.argv[1:])"
)

__all__ = ["BACKENDS", "ENVIRONMENT", "Backend", "View", "answering", "testing", "view"]

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/work",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
}
"""All that a program finds in its environment."""


class View(NamedTuple):
    """What a sandbox shows of the file system, read-only: path -> source; links: path -> target."""

    paths: Mapping[str, str]
    links: Mapping[str, str]


class Backend(NamedTuple):
    """`command(view, disk bytes, spec pipe, status pipe)`; `walls`: whether it isolates at all;
    `shared`: namespaces are ours, so that the work folder is one of ours, and processes and files
    are counted by looking."""

    name: str
    command: Callable[[View, int, int, int], list[str]]
    walls: bool = True
    user: Mapping[str, Any] = {}
    shared: bool = False


@functools.lru_cache(maxsize=64)
def view(*programs: str) -> View:
    """The interpreter with its standard library, system libraries, and some programs."""
    python, prefix = os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)
    wanted = [python, f"{prefix}/lib", sysconfig.get_path("stdlib"), "/etc/ld.so.cache", *programs]
    links, folders = {}, []
    for path in ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64"):
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif os.path.isdir(path):
            folders.append(path)
    paths: dict[str, str] = {f"{HARNESS}/cell": str(CELL)}
    for path in [*folders, *wanted]:
        hidden = any(path.startswith(f"{shown}/") for shown in [*paths, *links])
        if os.path.exists(path) and not hidden:
            paths[path] = os.path.realpath(path)
    return View(paths, links)


def python(folder: str, *how: object) -> list[str]:
    """The interpreter without site, running `cell` of a folder."""
    boot = BOOT.format(folder=folder)
    return [os.path.realpath(sys.executable), "-s", "-P", "-S", "-c", boot, *map(str, how)]


def bubblewrap(view: View, disk: int, spec: int, status: int) -> list[str]:
    """The program `bwrap`, which must know --disable-userns (0.8)."""
    shown = [word for path, source in view.paths.items() for word in ("--ro-bind", source, path)]
    shown += [word for path, target in view.links.items() for word in ("--symlink", target, path)]
    for name in ("null", "zero", "random", "urandom"):
        shown += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [
        *(
            shutil.which("bwrap") or "bwrap",
            "--unshare-all",
            "--unshare-user",
            "--disable-userns",
            "--die-with-parent",
        ),
        *("--new-session", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", *shown),
        *("--size", str(disk), "--tmpfs", "/work", "--remount-ro", "/", "--chdir", "/work", "--"),
        *python(HARNESS, "stay", spec, status),
    ]


def namespaces(_view: View, _disk: int, spec: int, status: int) -> list[str]:
    """Plain Linux namespaces, made by `cell.enter` (Linux 5.12)."""
    return python(str(CELL.parent), "enter", spec, status)


def landlock(_view: View, _disk: int, spec: int, status: int) -> list[str]:
    """No namespace, no privilege: Landlock (Linux 5.13) and a filter, put up by `cell.alone`."""
    return python(str(CELL.parent), "alone", spec, status)


def limits(_view: View, _disk: int, spec: int, status: int) -> list[str]:
    """No walls at all: limits and a wall clock. For machines that are themselves thrown away."""
    return python(str(CELL.parent), "stay", spec, status)


# Limits on processes do not bind root, so bubblewrap starts as another user.
_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

BACKENDS: dict[str, Backend] = {
    "bubblewrap": Backend("bubblewrap", bubblewrap, user=_user),
    "namespaces": Backend("namespaces", namespaces),
    "landlock": Backend("landlock", landlock, shared=True),
    "limits": Backend("limits", limits, walls=False, shared=True),
}
