"""Tracking: what a run folder holds arrives in a real MLflow store, once, and is never lost."""

import json
import shutil
import time
from pathlib import Path

import pytest

from posttrain.artifacts import write_json
from posttrain.journal import Journal
from posttrain.mlflow_client import prepare
from posttrain.shipper import Shipper
from posttrain.spool import unsent
from posttrain.tracking import ship


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with MLflow's empty tables, which take seconds to make."""
    file = tmp_path_factory.mktemp("tables") / "new" / "mlflow.db"
    prepare(file)
    assert sorted(path.name for path in file.parent.iterdir()) == ["mlflow.db", "mlflow.db.lock"]
    return file


@pytest.fixture(autouse=True)
def database(tmp_path: Path, tables: Path) -> None:
    """Each test has such a file."""
    for name in ("mlflow.db", "other.db"):
        shutil.copy(tables, tmp_path / name)


def write_run(folder: Path, *, steps: int = 3) -> None:
    journal = Journal(folder / "stages" / "rl", scratch=folder / "scratch")
    for step in range(steps):
        journal.log(step, reward=0.1 * step)
    now = time.time()
    write_json(
        folder / "stages" / "rl.json",
        {
            "task": "rl",
            "stage": "rl",
            "recipe": "demo",
            "cached": False,
            "reason": "first run",
            "key": "k" * 32,
            "git": "abc",
            "seed": 3,
            "seconds": 1.5,
            "started": now - 2,
            "ended": now,
            "config": {"learning_rate": 1e-5, "loss": {"name": "clip", "clip_high": 0.28}},
            "inputs": {"policy": "d" * 64},
            "outputs": {"trained": {"path": "x", "digest": "e" * 64}},
            "report": {"end_reward": 0.7, "kept+": 1, "name": "text", "curve": [1, 2]},
        },
    )


def test_a_run_arrives_whole_and_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run = tmp_path / "run"
    write_json(run / "launch.json", {"id": "1", "name": "demo", "started": time.time() - 10})
    write_run(run)
    assert ship(run, uri) == f"tracking: 1 tasks in {uri}"
    ship(run, uri)

    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "posttrain"]
    runs = client.search_runs([experiment.experiment_id])
    by_name = {r.info.run_name: r for r in runs}
    assert set(by_name) == {"demo", "rl"}
    nested = by_name["rl"]
    assert nested.data.tags["mlflow.parentRunId"] == by_name["demo"].info.run_id
    assert nested.data.params["loss/clip_high"] == "0.28"
    assert nested.data.metrics["report/end_reward"] == 0.7
    assert nested.data.metrics["report/kept_"] == 1
    assert nested.data.tags["git.sha"] == "abc"
    assert nested.data.tags["digest.trained"] == "e" * 64
    assert [m.step for m in client.get_metric_history(nested.info.run_id, "reward")] == [0, 1, 2]
    assert nested.inputs.dataset_inputs[0].dataset.digest == "d" * 36
    assert {r.info.status for r in runs} == {"FINISHED"}


def test_files_go_beside_the_database(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run)
    (run / "summary.json").write_text("{}")
    ship(run, f"sqlite:///{tmp_path}/mlflow.db")
    assert [p.name for p in (tmp_path / "artifacts").rglob("*.json")] == ["summary.json"]


def test_an_unreachable_server_loses_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run)
    told = ship(run, "http://127.0.0.1:9")
    assert "cannot be reached" in told
    assert "\n" not in told
    assert f"posttrain track {run}" in told
    assert ship(run, f"sqlite:///{tmp_path}/mlflow.db").startswith("tracking: 1 tasks")


def test_curves_of_a_running_task_are_sent_in_parts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, steps=2)
    record = run / "stages" / "rl.json"
    held = record.read_text()
    record.unlink()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert Shipper(run, uri).sync() == 0
    journal = Journal(run / "stages" / "rl", scratch=run / "scratch")
    journal.log(2, reward=0.2)
    record.write_text(held)
    assert Shipper(run, uri).sync() == 1
    state = json.loads((run / "mlflow.json").read_text())
    assert state["tasks"]["rl"]["last"] == {"reward": 2}


def test_a_deleted_database_gets_everything_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run)
    first = tmp_path / "mlflow.db"
    ship(run, f"sqlite:///{first}")
    state = json.loads((run / "mlflow.json").read_text())
    other = f"sqlite:///{tmp_path}/other.db"
    (run / "mlflow.json").write_text(json.dumps(state | {"uri": other}))
    assert ship(run, other) == f"tracking: 1 tasks in {other}"


@pytest.mark.parametrize("torn", ["", "{", "[]"])
def test_a_torn_state_starts_again(tmp_path: Path, torn: str) -> None:
    run = tmp_path / "run"
    write_run(run)
    (run / "mlflow.json").write_text(torn)
    assert ship(run, f"sqlite:///{tmp_path}/mlflow.db").startswith("tracking: 1 tasks")


def test_the_spool_gives_whole_lines_in_portions(tmp_path: Path) -> None:
    curves = tmp_path / "curves.jsonl"
    journal = Journal(tmp_path, scratch=tmp_path / "scratch")
    for step in range(5):
        journal.log(step, a=step, b=step)
    whole = curves.stat().st_size
    with curves.open("a") as file:
        file.write('{"step": 5, "time": 1.0, "metr')
    portions = list(unsent(curves, 0, {}, 4))
    assert [len(portion.points) for portion in portions] == [4, 4, 2]
    assert portions[-1].end == whole
    assert list(unsent(curves, whole, {"a": 4, "b": 4}, 4)) == [([], whole)]


def test_the_spool_leaves_out_what_a_resumed_stage_repeats(tmp_path: Path) -> None:
    journal = Journal(tmp_path, scratch=tmp_path / "scratch")
    curves = tmp_path / "curves.jsonl"
    journal.log(0, a=1.0)
    journal.log(1, a=float("nan"))
    sent = curves.stat().st_size
    journal.log(0, a=1.0)
    journal.log(1, a=float("nan"), b=1.0)
    journal.log(1, a=2.0)
    for start, last in ((sent, {"a": 1}), (0, {})):
        points = [p for portion in unsent(curves, start, last, 100) for p in portion.points]
        assert [(p.name, p.step, p.value) for p in points][-2:] == [("b", 1, 1.0), ("a", 1, 2.0)]
        assert len(points) == (2 if start else 4)


def test_a_task_that_began_again_gets_a_run_of_its_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, steps=2)
    record = run / "stages" / "rl.json"
    held = record.read_text()
    record.unlink()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    Shipper(run, uri).sync()
    (run / "stages/rl/curves.jsonl").unlink()
    Journal(run / "stages" / "rl", scratch=run / "scratch").log(0, reward=0.7)
    record.write_text(held)
    assert Shipper(run, uri).sync() == 1

    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.search_runs(["1"], "tags.task = 'rl'", order_by=["attributes.start_time"])
    assert [r.info.status for r in found] == ["KILLED", "FINISHED"]
    assert [p.value for p in client.get_metric_history(found[1].info.run_id, "reward")] == [0.7]
