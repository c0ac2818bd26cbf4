"""The data stages under DVC: a clean clone runs, a second run does nothing, a change is local."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from posttrain.artifacts import read_manifest, read_rows
from posttrain.cli import layers_of
from posttrain.command_line import parse
from posttrain.config import resolve
from posttrain.records import Demonstration, Preference, Prompt, RawRow
from posttrain.stages import TASKS, load_stage

ROOT = Path(__file__).parents[1]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def command(stage: str) -> list[str]:
    words: list[str] = STAGES[stage]["cmd"].split()
    return words[1:]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_dvc_stage_is_a_task_whose_command_parses(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    stage, arguments = parse(command(name))
    assert arguments.task == name
    assert TASKS[name] == stage.name
    resolve(stage.config, stage.name, name, layers_of(arguments.recipe, ""), {})


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_dvc_stage_declares_what_its_command_reads_and_writes(name: str) -> None:
    stage, arguments = parse(command(name))
    declared = STAGES[name]
    given = [getattr(arguments, port.name) for port in stage.inputs]
    inputs = sorted(str(path) for path in given if path)
    outputs = sorted(str(getattr(arguments, port.name)) for port in stage.outputs)
    code = [f"src/posttrain/{stage.name}"]
    code += ["src/posttrain/tasks"] if stage.name in ("raw", "curate") else []
    assert sorted([*inputs, *code]) == sorted(declared["deps"])
    assert outputs == sorted(declared["outs"])
    assert declared["params"] == ["seed", name]
    assert declared["metrics"] == [{str(arguments.metrics): {"cache": False}}]


def test_params_hold_a_section_for_every_stage() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert set(params) == {"about", "seed", *STAGES}
    assert load_stage("raw").config.model_validate(params["raw"])


def test_dvc_sends_nothing_and_names_no_machine() -> None:
    config = (ROOT / ".dvc/config").read_text()
    assert "analytics = false" in config
    assert "remote" not in config


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the files that DVC reads."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("dvc.yaml", "params.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc" / name)
    (folder / "data").mkdir()
    code = {path for stage in STAGES.values() for path in stage["deps"] if path.startswith("src/")}
    for path in code:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / path, folder / path, ignore=without)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "clone"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
        subprocess.run(git, cwd=folder, check=True, capture_output=True)
    return folder


def dvc(folder: Path, *arguments: str) -> str:
    """Run DVC with the interpreter of the tests, `posttrain` on the PATH."""
    scripts = folder / ".bin"
    scripts.mkdir(exist_ok=True)
    door = scripts / "posttrain"
    door.write_text(f'#!/bin/sh\nexec {sys.executable} -m posttrain.cli "$@"\n')
    door.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "DVC_NO_ANALYTICS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(output: str) -> set[str]:
    return {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")}


@pytest.mark.slow
def test_repro_from_a_clean_clone(clone: Path) -> None:
    assert ran(dvc(clone, "repro")) == set(STAGES)
    assert "up to date" in dvc(clone, "status")
    assert ran(dvc(clone, "repro")) == set()

    data = clone / "data"
    assert len(list(read_rows(data / "rm_5k7", Preference))) == 5700
    assert len(list(read_rows(data / "one_shot", Prompt))) == 1
    assert len(list(read_rows(data / "sft", Demonstration))) == 3500
    assert len(list(read_rows(data / "rl_prompts", Prompt))) == 3500
    tasks = {prompt.task for prompt in read_rows(data / "eval", Prompt)}
    assert tasks == {"arithmetic", "knights_knaves", "countdown"}
    curated = read_manifest(data / "curated/prompts").report
    assert curated["rows_in"] == len(list(read_rows(data / "raw", RawRow)))
    manifest = read_manifest(data / "rm_5k7")
    assert manifest.record == "Preference"
    assert manifest.inputs["curated"] == read_manifest(data / "curated/preferences").digest

    assert "metrics/curate.json" in dvc(clone, "metrics", "show")
    page = dvc(clone, "plots", "show").strip().splitlines()[-1]
    drawn = Path(page.removeprefix("file://")).read_text()
    assert "near_duplicate" in drawn

    params = clone / "params.yaml"
    text = params.read_text()
    params.write_text(
        text.replace("n: 5700", "n: 5000").replace("at_least: 5700", "at_least: 5000")
    )
    assert ran(dvc(clone, "repro")) == {"rm_5k7"}
    assert len(list(read_rows(data / "rm_5k7", Preference))) == 5000

    params.write_text(text)
    assert ran(dvc(clone, "repro")) <= {"rm_5k7"}
    assert "up to date" in dvc(clone, "status")
    untracked = subprocess.run(
        ["git", "status", "--short"], cwd=clone, check=True, capture_output=True, text=True
    ).stdout
    assert "data/" not in untracked
