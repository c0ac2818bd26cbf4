"""A rehearsal: the user's own recipe with next to nothing to do."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.operations.conftest import Server

from posttrain.check import GRAPHS
from posttrain.cli import main
from posttrain.config import load_recipe, parse_overrides, resolve
from posttrain.errors import ConfigError
from posttrain.rehearsal import rehearsal_overrides
from posttrain.stages import TASKS, load_stage
from posttrain.verbs import status

RUNS = "/apis/v2beta1/runs"
ROOT = Path(__file__).parents[2]


def configs(recipe: str, overrides: str, graph: str) -> dict[str, Any]:
    """The resolved options of every task of the rehearsal of a recipe."""
    tiny = parse_overrides(rehearsal_overrides(recipe, overrides, GRAPHS[graph]), TASKS)
    assert tiny
    layers = [load_recipe(recipe, TASKS), tiny]
    stages = {task: load_stage(TASKS[task]) for task in GRAPHS[graph]}
    return {task: resolve(s.config, s.name, task, layers, {}) for task, s in stages.items()}


@pytest.mark.parametrize(
    ("recipe", "graph"),
    [("demo", "posttraining"), ("real", "posttraining"), ("nightly", "nightly_eval")],
)
def test_every_task_of_the_shipped_recipes_is_tiny(recipe: str, graph: str) -> None:
    found = configs(recipe, "", graph)
    assert all(suite.options["limit"] <= 8 for suite in found["benchmark_rl"].suites)
    assert found["best_of_n"].n_max == 2
    assert found["gate"].registry_uri == ""
    assert found["gate"].webhook_env == ""
    if graph == "posttraining":
        assert (found["rl"].steps, found["rl"].prompts_per_step) == (2, 8)
        assert all(s.options["limit"] == 16 for s in found["reward_model"].panel_sets)
        assert found["reward_model"].overoptimisation is None
        assert {found[task].max_steps for task in ("sft", "rejected_sft", "reward_model")} == {2}


def test_what_may_be_mistaken_and_what_decides_memory_stays() -> None:
    given = {
        "base": {"model": "mine", "revision": "abc"},
        "rl": {"loss": {"name": "clip", "clip_high": 0.3}, "group_size": 5, "steps": 1},
        "rejected_sft": {"max_steps": 900, "max_length": 77, "batch_size": 6},
        "raw": {"sources": [{"name": "math_files", "folder": "${POSTTRAIN_DATA}", "limit": 9}]},
    }
    found = configs("demo", json.dumps(given), "posttraining")
    assert found["base"].model == "mine"
    assert found["rl"].loss.options == {"clip_high": 0.3}
    assert (found["rl"].group_size, found["rl"].steps) == (5, 1)
    assert (found["rejected_sft"].max_length, found["rejected_sft"].batch_size) == (77, 6)
    assert found["rejected_sft"].max_steps == 2
    (source,) = found["raw"].sources
    assert source.options == {"folder": "${POSTTRAIN_DATA}", "limit": 9}


def test_a_source_that_makes_no_rows_of_a_kind_makes_none() -> None:
    own = {"name": "procedural", "prompts": 0, "preferences": 7}
    found = configs("demo", json.dumps({"raw": {"sources": [own]}}), "curation")
    (source,) = found["raw"].sources
    assert (source.options["prompts"], source.options["preferences"]) == (0, 7)
    assert source.options["demonstrations"] == 100


def test_a_mistake_in_the_recipe_is_told_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="did you mean `learning_rate`"):
        rehearsal_overrides("demo", '{"rl": {"lerning_rate": 1}}', GRAPHS["posttraining"])


def finish(server: Server, state: str) -> None:
    """From now on every run that the server is given is over in that state."""
    create: Any = server.answers["POST", RUNS]

    def created(query: dict[str, str], body: Any) -> tuple[int, Any]:
        code, run = create(query, body)
        over = run | {"state": state, "run_details": {"task_details": []}}
        server.answers["GET", f"{RUNS}/{run['run_id']}"] = (200, over)
        return code, run

    server.answers["POST", RUNS] = created


@pytest.mark.parametrize(("state", "code", "runs"), [("SUCCEEDED", 0, 2), ("FAILED", 1, 1)])
def test_on_a_cluster_the_run_proper_waits_for_its_rehearsal(
    kubeflow: Server, monkeypatch: pytest.MonkeyPatch, state: str, code: int, runs: int
) -> None:
    monkeypatch.setattr(status, "EVERY_SECONDS", 0.0)
    finish(kubeflow, state)
    argv = ["submit", "--host", kubeflow.url, "--rehearse", "--name", "big"]
    overrides = '{"rl": {"steps": 4000}}'
    assert main([*argv, "--param", "recipe=real", "--param", f"overrides={overrides}"]) == code
    sent = kubeflow.all_sent("POST", RUNS)
    assert [run["display_name"] for run in sent] == ["big-rehearsal", "big"][:runs]
    parameters = [run["runtime_config"]["parameters"] for run in sent]
    assert json.loads(parameters[0]["overrides"])["rl"]["steps"] == 2
    assert {given["recipe"] for given in parameters} == {"real"}
    if runs == 2:
        assert parameters[1]["overrides"] == overrides


@pytest.mark.slow
def test_the_demo_is_rehearsed_and_no_champion_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage does a little. The run proper, after it, cannot begin."""
    monkeypatch.chdir(ROOT)
    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    out = tmp_path / "demo"
    out.mkdir()
    (out / "launch.json").mkdir()
    argv = ["run", "--rehearse", "--recipe", "demo", "--out", str(out)]
    with pytest.raises(OSError, match=r"launch\.json"):
        main([*argv, "--store", str(tmp_path / "store")])
    records = (tmp_path / "demo-rehearsal/stages").glob("*.json")
    assert {path.stem for path in records} == set(GRAPHS["posttraining"])
    assert not database.exists()
