"""DVC under hardship: two `dvc repro` at once, a kill in the middle, and what changed since."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCE = {"name": "procedural", "task": "arithmetic", "prompts": 80, "preferences": 90}
PARAMS = {
    "about": "a small set",
    "seed": 0,
    "raw": {"sources": [SOURCE | {"demonstrations": 80, "evaluation": 20}]},
    "curate": {"workers": 1, "shard_bytes": 1000},
    "rm_5k7": {"selectors": [{"name": "balanced", "n": 40}], "at_least": 40},
}
STAGES = ("raw", "curate", "rm_5k7")

pytestmark = pytest.mark.slow


def clone(folder: Path) -> Path:
    """A git repository with three of the stages, small parameters and the code they depend on."""
    folder.mkdir()
    whole = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    stages = {name: whole["stages"][name] for name in STAGES}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(whole | {"stages": stages}, sort_keys=False))
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    for name in (".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "data/README.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for path in {path for each in stages.values() for path in each["deps"]}:
        if path.startswith("src/"):
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / path, folder / path, ignore=without)
    git(folder, "init", "-q")
    keep(folder, "clone")
    return folder


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    line = ["git", *name, *arguments]
    return subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout


def keep(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start DVC in a process group of its own, `posttrain` of these tests on the PATH."""
    scripts = folder.parent / f"{folder.name}-bin"
    scripts.mkdir(exist_ok=True)
    door = scripts / "posttrain"
    door.write_text(f'#!/bin/sh\nexec {sys.executable} -m posttrain.cli "$@"\n')
    door.chmod(0o755)
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "DVC_NO_ANALYTICS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def dvc(folder: Path, *arguments: str) -> str:
    process = start(folder, *arguments)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def digests(folder: Path) -> dict[str, str]:
    """Output -> md5, as `dvc.lock` has them."""
    stages = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    return {out["path"]: out["md5"] for each in stages.values() for out in each["outs"]}


def finished_shards(folder: Path) -> int:
    return len(list(folder.glob("runs/store/work/*/scratch/shards/0*")))


def until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not holds():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = clone(tmp_path_factory.mktemp("dvc") / "undisturbed")
    dvc(folder, "repro")
    keep(folder, "made")
    return folder


def test_two_at_once_and_a_kill_leave_a_usable_repository(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = clone(tmp_path / "disturbed")
    first = start(folder, "repro")
    try:
        until(lambda: finished_shards(folder) >= 3, first)
        os.killpg(first.pid, signal.SIGSTOP)
        held = finished_shards(folder)
        second = start(folder, "repro")
        message, _ = second.communicate()
        assert second.returncode != 0
        assert "is busy, it is being blocked by" in message
        assert f"(PID {first.pid})" in message
        assert finished_shards(folder) == held
        os.killpg(first.pid, signal.SIGCONT)
        until(lambda: finished_shards(folder) >= held + 3, first)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert "data/rm_5k7" not in digests(folder)
    output = dvc(folder, "repro")
    assert "'raw' didn't change, skipping" in output
    assert digests(folder) == digests(undisturbed)
    assert "up to date" in dvc(folder, "status")
    assert git(folder, "status", "--short").split() == ["??", "dvc.lock", "??", "metrics/"]


def test_what_changed_reads_well(undisturbed: Path) -> None:
    """A smaller set of prompts: one stage of each kind tells what came of it."""
    before = json.loads((undisturbed / "metrics/curate.json").read_text())
    params = undisturbed / "params.yaml"
    params.write_text(params.read_text().replace("prompts: 80", "prompts: 50"))
    ran = dvc(undisturbed, "repro")
    assert [name for name in STAGES if f"Running stage '{name}'" in ran] == list(STAGES)
    after = json.loads((undisturbed / "metrics/curate.json").read_text())
    assert after["rows_in"] < before["rows_in"]

    files = {
        entry["path"].rstrip("/")
        for entry in json.loads(dvc(undisturbed, "diff", "--json"))["modified"]
    }
    assert {"data/raw", "data/raw/rows.jsonl", "data/curated/prompts/drops.json"} <= files
    assert not [path for path in files if path.endswith(("origin.json", "curves.jsonl"))]

    table = json.loads(dvc(undisturbed, "metrics", "diff", "--json"))
    change = table["metrics/curate.json"]["rows_in"]
    assert (change["old"], change["new"]) == (before["rows_in"], after["rows_in"])
    assert change["diff"] == after["rows_in"] - before["rows_in"]
    shown = dvc(undisturbed, "metrics", "diff", "--md")
    assert [line for line in shown.splitlines() if " kinds.prompts.rows_in " in line]

    sources = json.loads(dvc(undisturbed, "params", "diff", "--json"))["params.yaml"]
    assert list(sources) == ["raw.sources"]

    plots = json.loads(dvc(undisturbed, "plots", "diff", "--json"))["data"]
    assert set(plots) == {"Rows dropped by filter", "Rows kept by difficulty"}
    kept = dict.fromkeys(("HEAD", "workspace"), 0)
    for point in plots["Rows kept by difficulty"][0]["content"]["data"]["values"]:
        kept[point["rev"]] += point["rows"]
    assert kept == {"HEAD": before["kept"], "workspace": after["kept"]}
