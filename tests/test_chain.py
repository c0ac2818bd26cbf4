"""The whole graph as a user runs it: all tasks, then nothing twice, then killed and carried on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.check import GRAPHS
from posttrain.stages import load_stage

ROOT = Path(__file__).parents[1]
KILLED_IN = ("sft", "reward_model", "rl")


def start(folder: Path) -> "subprocess.Popen[str]":
    """`posttrain run` on the smoke recipe, in a process group of its own."""
    command = [sys.executable, "-m", "posttrain.cli", "run", "--recipe", "smoke"]
    arguments = ["--out", str(folder / "run"), "--store", str(folder / "store"), "--seed", "1"]
    uri = f"sqlite:///{folder}/mlflow.db"
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | {"MLFLOW_TRACKING_URI": uri, "MPLBACKEND": "agg"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path) -> str:
    process = start(folder)
    told, _ = process.communicate(timeout=900)
    assert process.returncode == 0, told[-4000:]
    return told


def records(folder: Path) -> dict[str, dict[str, Any]]:
    files = (folder / "run" / "stages").glob("*.json")
    return {path.stem: json.loads(path.read_text()) for path in files}


def digests(folder: Path) -> dict[str, str]:
    return {
        f"{task}.{port}": output["digest"]
        for task, record in records(folder).items()
        for port, output in record["outputs"].items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, finish(folder)


@pytest.mark.slow
def test_every_task_runs_and_the_verdict_is_shown(whole: tuple[Path, str]) -> None:
    folder, told = whole
    assert set(records(folder)) == set(GRAPHS["posttraining"])
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["wall_seconds"] > 0
    assert set(summary["stages"]) == set(GRAPHS["posttraining"])
    metrics = summary["metrics"]
    assert set(metrics["pass_at_1"]) == {"base", "sft", "rejected_sft", "rl"}
    assert all(0 <= s["low"] <= s["value"] <= s["high"] <= 1 for s in metrics["pass_at_1"].values())
    assert metrics["reward_model_accuracy"] is not None
    assert [point["n"] for point in metrics["best_of_n"]] == [1, 2]
    assert metrics["gate"]["verdict"] in ("pass", "fail", "investigate")
    assert "gate" in told
    assert (folder / "run" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_an_unchanged_run_does_nothing_again(whole: tuple[Path, str]) -> None:
    folder, _ = whole
    before = digests(folder)
    finish(folder)
    assert [task for task, record in records(folder).items() if not record["cached"]] == []
    assert digests(folder) == before


@pytest.mark.slow
def test_a_killed_run_ends_the_same(whole: tuple[Path, str], tmp_path: Path) -> None:
    """Killed with SIGKILL in three stages, each time carried on: same digests as never killed."""
    finished: set[str] = set()
    for task in KILLED_IN:
        began, process = time.time(), start(tmp_path)
        curves = tmp_path / "run" / "stages" / task / "curves.jsonl"
        deadline = time.monotonic() + 600
        while not curves.is_file() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert task not in records(tmp_path), f"{task} was over before it could be killed"
        found = records(tmp_path)
        met = {name for name in finished if found[name]["started"] >= began}
        assert all(found[name]["cached"] for name in met), "finished tasks were done again"
        finished = set(found)
    finish(tmp_path)
    assert digests(tmp_path) == digests(whole[0])


def test_the_checked_graphs_are_stages() -> None:
    from posttrain.stages import TASKS

    for tasks in GRAPHS.values():
        assert all(load_stage(TASKS[task]) for task in tasks)
