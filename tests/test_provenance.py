"""The code behind a result is found fast, and found whole."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.provenance import PACKAGE, code, imports, modules
from posttrain.stages import STAGES


def imported(path: Path) -> Iterator[str]:
    """The modules of posttrain that a file imports, by its syntax tree."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


@pytest.mark.parametrize("name", sorted(modules()))
def test_no_import_is_overlooked(name: str) -> None:
    wanted = {
        modules()[".".join(parts[:depth])]
        for parts in (module.split(".") for module in imported(modules()[name]))
        for depth in range(2, len(parts) + 1)
        if ".".join(parts[:depth]) in modules()
    }
    assert imports(modules()[name]) == wanted


def test_the_closure_holds_what_is_imported_late_and_what_is_no_code() -> None:
    assert {"rl/stage.py", "rl/learner.py", "policies.py"} <= code("rl").keys()
    assert "rl/learner.py" not in code("sft")
    assert any(not name.endswith(".py") for name in code("base"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_result_in_the_store_is_restored_without_heavy_imports(stage: str) -> None:
    """Up to its key, which is all that the store is asked for."""
    heavy = ("torch", "transformers", "mlflow", "kfp", "kubernetes", "trl")
    script = (
        "import sys\nfrom posttrain import cli, provenance\nfrom posttrain.stages import load_stage"
        f"\nload_stage({stage!r}); provenance.code({stage!r}); provenance.packages()"
        f"\nprint(*(name for name in {heavy} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


def test_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    """A copy of the package in a checkout of its own, before and after an edit; then in none."""
    package = tmp_path / "src/posttrain"
    package.mkdir(parents=True)
    for name in ("__init__.py", "provenance.py", "artifacts.py"):
        (package / name).write_text(
            "def file_digest(path): ...\n" if name == "artifacts.py" else ""
        )
    (package / "provenance.py").write_bytes((PACKAGE / "provenance.py").read_bytes())

    def told() -> str:
        line = "from posttrain.provenance import commit; print(commit())"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "src")}
        command = [sys.executable, "-c", line]
        known = environment | {"POSTTRAIN_COMMIT": "of the image"}
        return subprocess.check_output(command, env=known, text=True, cwd=tmp_path).strip()

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert told() == "of the image"
    git("init")
    git("add", "src")
    git("commit", "--no-verify", "-m", "first")
    assert re.fullmatch("[0-9a-f]{40}", told())
    (package / "__init__.py").write_text("# edited\n")
    assert told().endswith("+")
