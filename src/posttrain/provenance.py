"""Where a result comes from: the code, the packages and the commit that made it."""

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from posttrain.artifacts import file_digest

PACKAGE = Path(__file__).parent

NUMERIC = (
    "accelerate",
    "datasets",
    "math-verify",
    "numpy",
    "peft",
    "pyarrow",
    "pydantic",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
)
"""The distributions whose version can change a result."""


@functools.cache
def packages() -> dict[str, str]:
    """Versions of Python and of every distribution that can change a number."""
    versions = {"python": platform.python_version()}
    for name in NUMERIC:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    return versions


@functools.cache
def code(stage: str) -> dict[str, str]:
    """Relative path -> sha256 of every posttrain file that the stage's module can import.

    The closure is read from the import statements, so an edit of the report's page does not
    make the RL stage run again.
    """
    pending, seen = [PACKAGE / stage / "stage.py"], set[Path]()
    while pending:
        path = pending.pop()
        if path not in seen and path.is_file():
            seen.add(path)
            pending += imports(path)
    data = [
        f for f in (PACKAGE / stage).rglob("*") if f.is_file() and f.suffix not in (".py", ".pyc")
    ]
    return {
        path.relative_to(PACKAGE).as_posix(): file_digest(path)
        for path in sorted({*seen, *data} - {PACKAGE / name for name in NEUTRAL})
    }


NEUTRAL = (
    "__init__.py",
    "artifacts.py",
    "config.py",
    "durable.py",
    "errors.py",
    "heartbeat.py",
    "interruption.py",
    "journal.py",
)
"""Plumbing that cannot change a number; `records.py` and every stage file can."""


STATEMENT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(posttrain[\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n]*))"
    rb"|import[ \t]+(posttrain[^\n]*))",
    re.MULTILINE,
)
"""An import of posttrain. Ten times faster than a syntax tree, and a task imports a hundred files;
what stands in a text and looks like one only makes the closure larger."""


@functools.cache
def imports(path: Path) -> frozenset[Path]:
    """The posttrain files that one file imports, packages' `__init__` included."""
    found: set[str] = set()
    for module, several, line, whole in STATEMENT.findall(path.read_bytes()):
        listed = re.sub(rb"#[^\n]*", b"", several or line or whole).decode().split(",")
        names = [name.split()[0] for name in listed if name.strip()]
        if module:
            names = [module.decode(), *(f"{module.decode()}.{name}" for name in names)]
        for name in names:
            parts = name.split(".")
            found |= {".".join(parts[:depth]) for depth in range(2, len(parts) + 1)}
    return frozenset(modules()[name] for name in found if name in modules())


@functools.cache
def modules() -> dict[str, Path]:
    """The modules of posttrain and their files; as strings, for paths cost more than reading."""
    root, found = str(PACKAGE), {}
    for folder, _, names in os.walk(root):
        package = ".".join(("posttrain", *folder.removeprefix(root).split(os.sep)[1:]))
        for name in names:
            if name == "__init__.py":
                found[package] = Path(folder, name)
            elif name.endswith(".py"):
                found[f"{package}.{name[:-3]}"] = Path(folder, name)
    return found


@functools.cache
def commit() -> str:
    """The git commit of the code, `+` for uncommitted changes; `unknown` outside a checkout, unless
    an image says of which commit it is."""
    places = ("--untracked-files=no", "--", ":/src", ":/pipelines")
    try:
        told = _git("status", "--porcelain=v2", "--branch", *places).splitlines()
        head = next(line.split()[2] for line in told if line.startswith("# branch.oid "))
    except (OSError, subprocess.CalledProcessError, StopIteration):
        return os.environ.get("POSTTRAIN_COMMIT", "unknown")
    return head + ("+" if any(not line.startswith("#") for line in told) else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()
