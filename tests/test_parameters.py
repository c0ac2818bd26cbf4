"""What a run chooses reaches the command line of the task that it is meant for, on both."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.test_surfaces import PIPELINES, argo_commands, ports_of

from pipelines import argo
from pipelines.graphs import graph_of
from pipelines.posttraining import posttraining
from posttrain.command_line import parse
from posttrain.kubeflow import command

CHOSEN = {
    "raw": ("revision", "data_revision", "0123", "option_revision"),
    "gate": ("model_name", "registered_model", "org-model", "option_model_name"),
    "rl": ("machines", "train_machines", "4", "machines"),
    "sft": ("budget", "budget", "12.5", "run_budget"),
}
"""Stage -> its option in the component, the parameter of the graph, a value, and where the command
line has it."""


@pytest.mark.parametrize("stage", CHOSEN)
def test_what_a_run_chooses_reaches_the_stage_on_both(stage: str) -> None:
    option, parameter, value, found = CHOSEN[stage]
    given = graph_of(posttraining).tasks[stage]["inputs"]["parameters"][option]
    assert given == {"componentInputParameter": parameter}
    ports = {port: f"/{port}" for each in ports_of(stage) for port in each}
    run = {"task": stage, "recipe": "demo", "seed": 0, "overrides": ""}
    line = command(stage, **run, **ports, **{option: value})
    assert str(getattr(parse(line)[1], found)) == value
    built = argo.workflow(posttraining, **{parameter: value})
    assert {"name": parameter, "value": value} in arguments_of(built)
    lines = {line[2]: line for line in argo_commands("posttraining")}
    assert hasattr(parse([word or value for word in lines[stage]])[1], found)


def arguments_of(built: Any) -> list[dict[str, str]]:
    """The parameters of a workflow."""
    return list(yaml.safe_load(built.to_yaml())["spec"]["arguments"]["parameters"])


def test_base_model_reaches_the_stage_on_both(tmp_path: Path) -> None:
    (line,) = [x for x in argo_commands("posttraining") if x[0] == "base"]
    assert line[line.index("--model") + 1] == ""
    given = {"task": "base", "recipe": "demo", "seed": 0, "overrides": ""}
    line = command("base", **given, policy=str(tmp_path), model="org/model")
    assert parse(line)[1].option_model == "org/model"
    assert not hasattr(
        parse(command("base", **given, policy=str(tmp_path), model=""))[1], "option_model"
    )


def test_run_parameters_are_documented() -> None:
    for pipeline in PIPELINES.values():
        inputs = pipeline.pipeline_spec.root.input_definitions.parameters
        assert {"recipe", "seed", "overrides", "base_model", "accelerator"} <= set(inputs)
        assert {"data_revision", "budget", "registered_model", "rollout_affinity"} <= set(inputs)
        assert [name for name, given in inputs.items() if not given.description] == []
