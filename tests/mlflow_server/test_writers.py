"""Eight writers at once, and a server that dies while it is written to: each point arrives once."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import write_json
from posttrain.journal import Journal
from posttrain.mlflow_client import connect
from posttrain.shipper import Shipper
from posttrain.tracking import live, send

pytestmark = pytest.mark.slow

WRITERS = 8
STEPS = 300
NAMES = ("reward", "loss", "entropy")


def write_task(run: Path, task: str, steps: int = STEPS) -> None:
    journal = Journal(run / "stages" / task, scratch=run / "scratch" / task)
    for step in range(steps):
        journal.log(step, **dict.fromkeys(NAMES, step + 0.5))
    now = time.time()
    write_json(
        run / "stages" / f"{task}.json",
        {"task": task, "stage": "rl", "recipe": "demo", "cached": False, "reason": "first run"}
        | {"key": "k" * 32, "git": "abc", "seed": 3, "seconds": 1.5, "started": now, "ended": now}
        | {"config": {f"option_{i}": i for i in range(120)}, "inputs": {"policy": "d" * 64}}
        | {"outputs": {"trained": {"path": "x", "digest": "e" * 64}}, "report": {"end": 0.7}},
    )


def runs_of(uri: str) -> list[Any]:
    client = connect(uri)
    experiment = client.get_experiment_by_name("posttrain")
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def assert_whole(uri: str, tasks: Sequence[str], parents: int) -> None:
    """Each task is one finished run with each point, parameter and tag once."""
    client = connect(uri)
    nested = [run for run in runs_of(uri) if "mlflow.parentRunId" in run.data.tags]
    assert Counter(run.info.run_name for run in nested) == Counter(tasks)
    assert len(runs_of(uri)) == len(nested) + parents
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {
        run.info.run_id for run in runs_of(uri) if "mlflow.parentRunId" not in run.data.tags
    }
    for run in nested:
        assert run.info.status == "FINISHED"
        assert len(run.data.params) == 120
        assert run.data.tags["digest.trained"] == "e" * 64
        assert len(run.inputs.dataset_inputs) == 1
        for name in NAMES:
            history = client.get_metric_history(run.info.run_id, name)
            assert [point.step for point in history] == list(range(STEPS)), name
        assert run.data.metrics["report/end"] == 0.7


def track_at_once(uri: str, folders: Sequence[Path]) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "posttrain.cli", "track", str(folder), "--to", uri],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for folder in folders
    ]
    for writer in writers:
        _, told = writer.communicate()
        assert writer.returncode == 0, told


@pytest.mark.parametrize("shared", [False, True], ids=["own folders", "one folder"])
def test_eight_processes_write_to_a_new_file(tmp_path: Path, shared: bool) -> None:
    """They also race for the first start, which makes the tables."""
    folders = [tmp_path / ("run" if shared else f"run_{i}") for i in range(WRITERS)]
    tasks = [f"rl_{i}" for i in range(WRITERS)]
    for folder, task in zip(folders, tasks, strict=True):
        write_task(folder, task)
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    track_at_once(uri, folders)
    assert_whole(uri, tasks, 1 if shared else WRITERS)
    assert not list((tmp_path / "new").glob(".*"))


def test_eight_processes_write_to_a_server(
    tmp_path: Path, mlflow: Callable[..., Any], postgres: Callable[[str], str], user: None
) -> None:
    server = mlflow(postgres("writers"))
    for i in range(WRITERS):
        write_task(tmp_path / f"run_{i}", f"rl_{i}")
        write_task(tmp_path / "shared", f"sft_{i}")
    tasks = [f"{kind}_{i}" for i in range(WRITERS) for kind in ("rl", "sft")]
    track_at_once(server.uri, [tmp_path / f"run_{i}" for i in range(WRITERS)])
    track_at_once(server.uri, [tmp_path / "shared"] * WRITERS)
    assert_whole(server.uri, tasks, WRITERS + 1)


def test_a_server_that_dies_gets_the_rest_when_it_is_back(
    tmp_path: Path,
    mlflow: Callable[..., Any],
    user: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed while batches are on their way, so that nobody knows which of them arrived."""
    monkeypatch.setattr("posttrain.tracking.SEND_EVERY_SECONDS", 0.05)
    monkeypatch.setattr("posttrain.shipper.BATCH", 30)
    server = mlflow()
    run = tmp_path / "run"
    journal = Journal(run / "stages" / "rl", scratch=run / "scratch" / "rl")
    with live(run, server.uri):
        for step in range(STEPS):
            journal.log(step, **dict.fromkeys(NAMES, step + 0.5))
            if step == STEPS // 2:
                while not (run / "mlflow.json").exists():
                    time.sleep(0.01)
                time.sleep(0.5)
                server.kill()
            time.sleep(0.01)
        server.start()
        # No word from the run: what it wrote meanwhile must come by itself.
        until = time.monotonic() + 60
        while points(server.uri) < STEPS * len(NAMES) and time.monotonic() < until:
            time.sleep(0.5)
    assert points(server.uri) == STEPS * len(NAMES)
    assert capsys.readouterr().err.count("cannot be reached") == 1
    write_task(run, "sft")
    assert send(run, server.uri) == 1
    for name in NAMES:
        (nested,) = [r for r in runs_of(server.uri) if r.info.run_name == "rl"]
        history = connect(server.uri).get_metric_history(nested.info.run_id, name)
        assert sorted(point.step for point in history) == list(range(STEPS))


def points(uri: str) -> int:
    """How many points the server has of the task."""
    client = connect(uri)
    found = [r for r in runs_of(uri) if r.info.run_name == "rl"]
    return sum(len(client.get_metric_history(r.info.run_id, n)) for r in found for n in NAMES)


def test_what_may_have_arrived_is_sent_again_and_kept_once(tmp_path: Path, tables: Path) -> None:
    """A client that died between the server's answer and its own note of it."""
    uri = f"sqlite:///{shutil.copy(tables, tmp_path)}"
    write_task(tmp_path / "run", "rl")
    state = tmp_path / "run/mlflow.json"
    Shipper(tmp_path / "run", uri).sync()
    kept = state.read_text()
    for forgotten in ('"parent"', '"bytes"', '"done"'):
        write_json(state, without(kept, forgotten))
        Shipper(tmp_path / "run", uri).sync()
        assert_whole(uri, ["rl"], 1)


def without(kept: str, forgotten: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(kept)
    task = state["tasks"]["rl"] | {"done": False}
    if forgotten == '"parent"':
        return state | {"parent": None, "tasks": {}}
    return state | {
        "tasks": {"rl": task | ({"bytes": 0, "last": {}} if "bytes" in forgotten else {})}
    }


def test_a_step_that_a_resumed_stage_logs_again(tmp_path: Path, tables: Path) -> None:
    uri = f"sqlite:///{shutil.copy(tables, tmp_path)}"
    run = tmp_path / "run"
    journal = Journal(run / "stages" / "rl", scratch=run / "scratch")
    for step in range(6):
        journal.log(step, reward=step)
    Shipper(run, uri).sync()
    for step in range(3, 9):
        journal.log(step, reward=14.0 if step == 4 else step)
    Shipper(run, uri).sync()
    (nested,) = [r for r in runs_of(uri) if r.info.run_name == "rl"]
    history = connect(uri).get_metric_history(nested.info.run_id, "reward")
    assert sorted((p.step, p.value) for p in history) == sorted(
        [*((step, float(step)) for step in range(9)), (4, 14.0)]
    )
