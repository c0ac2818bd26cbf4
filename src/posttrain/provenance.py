"""Where a result comes from: the code, the packages and the commit that made it."""

import ast
import functools
import importlib.metadata
import platform
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


def packages() -> dict[str, str]:
    """Versions of Python and of every distribution that can change a number."""
    versions = {"python": platform.python_version()}
    for name in NUMERIC:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    return versions


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


NEUTRAL = ("__init__.py", "artifacts.py", "config.py", "errors.py", "journal.py")
"""Plumbing that cannot change a number; `records.py` and every stage file can."""


@functools.cache
def imports(path: Path) -> tuple[Path, ...]:
    """The posttrain files that one file imports, packages' `__init__` included."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "posttrain":
                for depth in range(2, len(parts) + 1):
                    target = PACKAGE.joinpath(*parts[1:depth])
                    found |= {target.with_suffix(".py"), target / "__init__.py"}
    families = {part for part in found if part.name == "__init__.py" and part.is_file()}
    return tuple(f for f in sorted(found | families) if f.is_file())


@functools.cache
def commit() -> str:
    """The git commit of the code, `+` for uncommitted changes; `unknown` outside a checkout."""
    try:
        head = _git("rev-parse", "HEAD")
        dirty = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "pipelines")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if dirty else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()
