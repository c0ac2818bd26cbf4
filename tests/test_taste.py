"""The mechanical rules of the house: sizes, names, imports, and what must never appear."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src/posttrain").rglob("*.py"))
CODE = [
    *SOURCE,
    *sorted((ROOT / "pipelines").rglob("*.py")),
    *sorted((ROOT / "components").rglob("*.py")),
]
STAGES = sorted((ROOT / "src/posttrain").glob("*/stage.py"))
VAGUE = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py"}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", CODE, ids=name)
def test_sizes_and_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= 400, f"{lines} lines: which two rooms are in this file?"
    assert path.name not in VAGUE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{node.name} is {length} lines"


@pytest.mark.parametrize("path", STAGES, ids=name)
def test_a_stage_is_a_page_and_imports_light(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 200
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    heavy = {"torch", "transformers", "trl", "peft", "mlflow", "kfp", "datasets", "accelerate"}
    tops = {
        part.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for part in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    assert not tops & heavy


@pytest.mark.parametrize("path", sorted((ROOT / "components").glob("*/component.py")), ids=name)
def test_a_component_is_thin(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= 60
    assert (path.parent / "README.md").is_file()


@pytest.mark.parametrize("path", CODE, ids=name)
def test_nothing_unsafe_or_unfinished(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    unsafe = (
        r"trust_remote_code\s*=\s*True|weights_only\s*=\s*False|pickle\.load|torch\.load\("
        r"|verify\s*=\s*False|shell\s*=\s*True"
    )
    assert not re.search(unsafe, text)
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", text)


@pytest.mark.parametrize("path", SOURCE, ids=name)
def test_modules_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body


def test_the_mlflow_folder_shadows_nothing() -> None:
    assert not list((ROOT / "mlflow").rglob("*.py"))


def test_help_needs_no_heavy_import() -> None:
    """`--help` of every stage stays light, so it is instant on any machine."""
    script = (
        "import sys, posttrain.cli; from posttrain.stages import STAGES, load_stage\n"
        "for stage in STAGES:\n    load_stage(stage)\n"
        "heavy = {'torch', 'transformers', 'trl', 'mlflow', 'kfp', 'datasets'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
