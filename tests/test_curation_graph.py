"""Curation on many machines, for real through kfp.local: the digests of the task `curate`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines import argo
from pipelines.curation import PARTS, curation
from pipelines.steps import STORE_PATH
from posttrain.artifacts import read_manifest
from posttrain.check import GRAPHS
from posttrain.cli import main
from posttrain.command_line import parse
from posttrain.kubeflow import command
from posttrain.stages import load_stage

ROOT = Path(__file__).parents[1]
OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
SOURCE = {"name": "procedural", "task": "arithmetic", "prompts": 40, "preferences": 40}
RECIPE = {
    "about": "a small set",
    "raw": {"sources": [SOURCE | {"demonstrations": 40, "evaluation": 20}]},
    "curate": {"workers": 1, "shard_bytes": 4000},
}


def tasks() -> dict[str, Any]:
    """The tasks of the graph, those of the loop among them."""
    spec = curation.pipeline_spec
    dags = [spec.root.dag, *(each.dag for each in spec.components.values())]
    found = {name.replace("-", "_"): task for dag in dags for name, task in dag.tasks.items()}
    del found["for_loop_1"]
    return found


def test_the_graph_has_the_tasks_that_preflight_knows() -> None:
    assert set(tasks()) == set(GRAPHS["curation"])
    assert sorted(tasks()["curate_map"].inputs.artifacts) == ["evaluation", "rows"]


@pytest.mark.parametrize("name", ["curate_learn", "curate_map", "curate_reduce"])
def test_a_component_has_the_ports_of_its_stage(name: str) -> None:
    stage, component = load_stage(name), curation.pipeline_spec.components
    spec = component[f"comp-{name.replace('_', '-')}"]
    inputs, outputs = spec.input_definitions.artifacts, spec.output_definitions.artifacts
    assert {port.name: port.many for port in stage.inputs} == {
        port: given.is_artifact_list for port, given in inputs.items()
    }
    assert {port.name for port in stage.outputs} == set(outputs) - {"metrics"}
    ports = {port: f"/{port}" for port in [*inputs, *outputs] if port != "metrics"}
    given = {"part": "2/4"} if name == "curate_map" else {}
    line = command(name, task=name, recipe="demo", seed=0, overrides="", **ports, **given)
    _, arguments = parse(line)
    assert getattr(arguments, "option_part", "2/4") == "2/4"


def test_argo_goes_over_the_parts_and_gathers_them_in_the_store() -> None:
    parts = ["1/2", "2/2"]
    spec = yaml.safe_load(argo.workflow(curation, parts=parts).to_yaml())["spec"]
    templates = {template["name"]: template for template in spec["templates"]}
    steps = {step["name"]: step for step in templates["curation"]["dag"]["tasks"]}
    assert {"name": "parts", "value": '["1/2", "2/2"]'} in spec["arguments"]["parameters"]
    assert steps["curate-map"]["withParam"] == "{{workflow.parameters.parts}}"
    assert steps["curate-map"]["arguments"]["parameters"] == [{"name": "part", "value": "{{item}}"}]
    assert steps["curate-map"]["dependencies"] == ["curate-learn", "raw"]
    assert steps["curate-reduce"]["dependencies"] == ["curate-map", "raw"]
    assert [given["name"] for given in steps["curate-reduce"]["arguments"]["artifacts"]] == ["rows"]

    line = templates["curate-map"]["container"]["args"]
    varying = "{{inputs.parameters.part}}"
    lines = [[word.replace(varying, part) for word in line] for part in parts]
    mapped = [parse(filled(line, spec))[1] for line in lines]
    assert [each.option_part for each in mapped] == parts
    _, reduced = parse(filled(templates["curate-reduce"]["container"]["args"], spec))
    assert reduced.finished == [each.finished for each in mapped]
    assert str(reduced.finished[0]).startswith(STORE_PATH)


def filled(line: list[str], spec: dict[str, Any]) -> list[str]:
    """A command line with the workflow's own parameter values."""
    for given in spec["arguments"]["parameters"]:
        placeholder = f"{{{{workflow.parameters.{given['name']}}}}}"
        line = [word.replace(placeholder, given["value"]) for word in line]
    return line


@pytest.mark.slow
def test_kfp_local_makes_what_curate_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    recipe, out = tmp_path / "small.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(RECIPE))
    store = ["--store", str(tmp_path / "store")]
    line = ["run", "--graph", "curation", "--recipe", str(recipe), "--out", str(out), *store]
    assert main(line) == 0, capsys.readouterr()
    record = json.loads((out / "stages/curate_reduce.json").read_text())
    assert len(list(out.glob("kfp/**/curate-map*"))) >= len(PARTS)

    rows, whole = json.loads((out / "stages/raw.json").read_text()), tmp_path / "whole"
    ports = [word for port in OUTPUTS for word in (f"--{port}", str(whole / port))]
    line = ["curate", "--recipe", str(recipe), "--rows", rows["outputs"]["rows"]["path"], *ports]
    assert main([*line, *store, "--run-folder", str(whole / "run"), "--tracking", "off"]) == 0
    assert {port: each["digest"] for port, each in record["outputs"].items()} == {
        port: read_manifest(whole / port).digest for port in OUTPUTS
    }
    mapped = json.loads((out / "stages/curate_map.json").read_text())
    assert mapped["key_parts"]["config"]["part"] in PARTS
    assert mapped["key_parts"]["config"]["shard_bytes"] == 4000
