"""The way into plain namespaces: own user, mounts, processes, network, IPC; then `inside`.

As root the mounts are made first, and the user that owns the new user namespace is an ordinary
one: no limit on processes binds root, and what owns no mount namespace can change no mount.
"""

from __future__ import annotations

import os

from . import inside, kernel

TYPE_CHECKING = False  # `typing` itself takes as long to import as all of this
if TYPE_CHECKING:
    from typing import Any

OUTSIDE_ID = 65534
"""Who root becomes: `nobody`."""
INSIDE_ID = 1000

OTHERS = (
    kernel.NEWUSER | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
    | kernel.NEWCGROUP
)  # fmt: skip


def enter(spec: dict[str, Any], status: int) -> None:
    """Go in; returns in the process that is to run the code, and in no other."""
    kernel.die_with_parent()
    own = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    users = os.open("/proc/sys/user", os.O_RDONLY | os.O_DIRECTORY)
    if os.geteuid() == 0:
        kernel.unshare(kernel.NEWNS)
        build_root(spec)
        os.setgroups([])
        os.setresgid(OUTSIDE_ID, OUTSIDE_ID, OUTSIDE_ID)
        os.setresuid(OUTSIDE_ID, OUTSIDE_ID, OUTSIDE_ID)
        kernel.dumpable(True)  # else /proc/self belongs to root, and the maps with it
        kernel.unshare(OTHERS)
        map_ids(own, OUTSIDE_ID, OUTSIDE_ID)
    else:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(OTHERS | kernel.NEWNS)
        map_ids(own, user, group)
        build_root(spec)
    write(users, "max_user_namespaces", "0")
    os.close(own)
    os.close(users)
    kernel.die_with_parent()  # a change of user has cleared it
    first = os.fork()
    if first == 0:
        kernel.die_with_parent()
        inside.watch(spec, status)
        return
    os.close(status)
    os.waitpid(first, 0)
    os._exit(0)


def map_ids(own: int, user: int, group: int) -> None:
    """One user and one group inside, which are ours outside."""
    write(own, "setgroups", "deny")
    write(own, "uid_map", f"{INSIDE_ID} {user} 1")
    write(own, "gid_map", f"{INSIDE_ID} {group} 1")


def write(folder: int, name: str, text: str) -> None:
    """Write a file of /proc."""
    with open(os.open(name, os.O_WRONLY, dir_fd=folder), "w") as file:
        file.write(text)


def build_root(spec: dict[str, Any]) -> None:
    """A root of `spec["paths"]`, all read-only, and an empty /work in memory; no /proc."""
    kernel.mount("", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
    # Two roots: below the first one the old root stays visible while the second is built.
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=755,size=1m")
    os.mkdir("/tmp/old")
    kernel.pivot_root("/tmp", "/tmp/old")
    os.chdir("/")
    os.mkdir("/new")
    kernel.mount("tmpfs", "/new", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=755,size=1m")
    for path, source in spec["paths"].items():
        show(f"/old{source}", f"/new{path}")
    for path, target in spec["links"].items():
        os.symlink(target, f"/new{path}")
    for name in ("null", "zero", "random", "urandom"):
        place(f"/new/dev/{name}")
        kernel.mount(f"/old/dev/{name}", f"/new/dev/{name}", flags=kernel.BIND)
    os.mkdir("/new/work")
    size = f"mode=777,size={spec['disk']},nr_inodes={spec['inodes']}"
    kernel.mount("tmpfs", "/new/work", "tmpfs", kernel.NOSUID | kernel.NODEV, size)
    kernel.read_only("/new", recursive=False)
    kernel.detach("/old")
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")


def show(source: str, target: str) -> None:
    """Make a file or folder appear, read-only."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        place(target)
    kernel.mount(source, target, flags=kernel.BIND | kernel.RECURSIVE)
    kernel.read_only(target)


def place(path: str) -> None:
    """An empty file to mount on."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
