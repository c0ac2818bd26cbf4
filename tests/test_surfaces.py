"""One graph: Kubeflow, Argo, DVC and the command line agree on tasks, edges and options."""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl

from pipelines import argo
from pipelines.graphs import graph_of, sources
from pipelines.nightly_eval import SCHEDULE, TIMEZONE, nightly_eval
from pipelines.posttraining import posttraining
from pipelines.steps import GATHERED, POOLS, UI_TYPES, component_of
from posttrain.check import GRAPHS
from posttrain.command_line import parse
from posttrain.kubeflow import command
from posttrain.stages import STAGES, TASKS, load_stage

ROOT = Path(__file__).parents[1]
PIPELINES = {"posttraining": posttraining, "nightly_eval": nightly_eval}

# consumer: {input: producer.output}
EDGES = {
    "raw": {},
    "base": {},
    "curate": {"rows": "raw.rows"},
    "sft": {"policy": "base.policy", "demonstrations": "curate.demonstrations"},
    "reward_model": {"policy": "sft.trained", "preferences": "curate.preferences"},
    "reject": {"policy": "sft.trained", "prompts": "curate.prompts", "judge": "reward_model.judge"},
    "rejected_sft": {"policy": "sft.trained", "demonstrations": "reject.demonstrations"},
    "rl": {
        "policy": "rejected_sft.trained",
        "prompts": "curate.prompts",
        "judge": "reward_model.judge",
        "demonstrations": "reject.demonstrations",
    },
    "best_of_n": {
        "policy": "rl.trained",
        "evaluation": "curate.evaluation",
        "judge": "reward_model.judge",
    },
    **{
        f"benchmark_{name}": {
            "policy": source,
            "evaluation": "curate.evaluation",
            "judge": "reward_model.judge",
        }
        for name, source in {
            "base": "base.policy",
            "sft": "sft.trained",
            "rejected_sft": "rejected_sft.trained",
            "rl": "rl.trained",
        }.items()
    },
    "gate": {
        "challenger": "benchmark_rl.scores",
        "champion": "benchmark_sft.scores",
        "policy": "rl.trained",
    },
    "report": {
        "raw": "raw.rows",
        "prompts": "curate.prompts",
        "demonstrations": "curate.demonstrations",
        "preferences": "curate.preferences",
        "evaluation": "curate.evaluation",
        "base": "base.policy",
        "sft": "sft.trained",
        "reward_model": "reward_model.judge",
        "reject": "reject.demonstrations",
        "rejected_sft": "rejected_sft.trained",
        "rl": "rl.trained",
        "best_of_n": "best_of_n.scores",
        "benchmark_base": "benchmark_base.scores",
        "benchmark_sft": "benchmark_sft.scores",
        "benchmark_rejected_sft": "benchmark_rejected_sft.scores",
        "benchmark_rl": "benchmark_rl.scores",
        "gate": "gate.verdict",
    },
}


EVALUATED = {
    "policy": "base.policy",
    "evaluation": "curate.evaluation",
    "judge": "judge.judge",
}
NIGHTLY = {
    "raw": {},
    "base": {},
    "judge": {},
    "curate": {"rows": "raw.rows"},
    "best_of_n": EVALUATED,
    "benchmark_rl": EVALUATED,
    "gate": {
        "challenger": "benchmark_rl.scores",
        "champion": "benchmark_rl.scores",
        "policy": "base.policy",
    },
    "report": {
        "raw": "raw.rows",
        "evaluation": "curate.evaluation",
        "base": "base.policy",
        "best_of_n": "best_of_n.scores",
        "benchmark_rl": "benchmark_rl.scores",
        "gate": "gate.verdict",
    },
}


def kfp_edges(pipeline: Any) -> dict[str, dict[str, str]]:
    """Consumer -> input -> `producer.output`, from the compiled form."""
    return {
        task(name): {
            port: f"{task(source['producerTask'])}.{source['outputArtifactKey']}"
            for port, source in sources(spec).items()
        }
        for name, spec in graph_of(pipeline).tasks.items()
    }


def task(name: str) -> str:
    return name.replace("-", "_")


def argo_spec(name: str) -> dict[str, Any]:
    pipeline = PIPELINES[name]
    if name == "nightly_eval":
        built = argo.cron_workflow(pipeline, SCHEDULE, TIMEZONE)
        return dict(yaml.safe_load(built.to_yaml())["spec"]["workflowSpec"])
    return dict(yaml.safe_load(argo.workflow(pipeline).to_yaml())["spec"])


def argo_dag(name: str) -> list[dict[str, Any]]:
    spec = argo_spec(name)
    entry = next(t for t in spec["templates"] if t["name"] == spec["entrypoint"])
    return list(entry["dag"]["tasks"])


def argo_commands(name: str) -> list[list[str]]:
    """The command line of every template, the workflow's own parameter values filled in."""
    spec = argo_spec(name)
    values = {p["name"]: p["value"] for p in spec["arguments"]["parameters"]}
    lines = [t["container"]["args"] for t in spec["templates"] if "container" in t]
    for parameter, value in values.items():
        placeholder = f"{{{{workflow.parameters.{parameter}}}}}"
        lines = [[word.replace(placeholder, value) for word in line] for line in lines]
    return lines


def ports_of(name: str) -> tuple[dict[str, bool], set[str]]:
    """A component's input artifacts (name -> required) and its output artifacts."""
    spec = component_of(name).component_spec
    inputs = {
        port: not given.optional
        for port, given in spec.inputs.items()
        if given.type.startswith("system.")
    }
    return inputs, {port for port, out in spec.outputs.items() if not out.type.startswith(UI_TYPES)}


def test_kubeflow_has_the_edges_that_were_meant() -> None:
    assert kfp_edges(posttraining) == EDGES
    assert kfp_edges(nightly_eval) == NIGHTLY


@pytest.mark.parametrize("name", PIPELINES)
def test_argo_has_the_edges_of_kubeflow(name: str) -> None:
    edges = {
        task(step["name"]): {
            given["name"]: ".".join(
                task(part) if i == 0 else part
                for i, part in enumerate(
                    given["from"].strip("{}").removeprefix("tasks.").split(".outputs.artifacts.")
                )
            )
            for given in step.get("arguments", {}).get("artifacts", [])
        }
        for step in argo_dag(name)
    }
    assert edges == kfp_edges(PIPELINES[name])


@pytest.mark.parametrize("name", PIPELINES)
def test_argo_waits_for_every_producer(name: str) -> None:
    for step in argo_dag(name):
        producers = {
            e.split(".")[0] for e in kfp_edges(PIPELINES[name])[task(step["name"])].values()
        }
        assert {task(d) for d in step.get("dependencies", [])} == producers


@pytest.mark.parametrize("name", PIPELINES)
def test_preflight_knows_the_tasks_of_the_graph(name: str) -> None:
    assert set(GRAPHS[name]) == set(kfp_edges(PIPELINES[name])) <= set(TASKS)


def test_every_pool_is_of_a_stage() -> None:
    assert set(POOLS) <= set(STAGES)


@pytest.mark.parametrize("name", sorted(set(TASKS) & {t for p in PIPELINES for t in GRAPHS[p]}))
def test_component_and_stage_have_the_same_ports(name: str) -> None:
    stage = load_stage(TASKS[name])
    inputs, outputs = ports_of(name)
    assert outputs == {p.name for p in stage.outputs}
    if TASKS[name] in GATHERED:
        assert [p.name for p in stage.inputs if p.many] == [GATHERED[TASKS[name]]]
        assert set(inputs) == set(EDGES[name])
        assert not any(inputs.values())
    else:
        assert inputs == {p.name: p.required for p in stage.inputs}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_argo_command_parses(name: str) -> None:
    lines = argo_commands(name)
    assert len(lines) == len(GRAPHS[name])
    for line in lines:
        stage, _ = parse(line)
        assert stage.name == line[0]


@pytest.mark.parametrize("name", sorted({t for p in PIPELINES for t in GRAPHS[p]}))
def test_every_kubeflow_command_parses(name: str) -> None:
    """The component's body hands all its ports to a command line that the stage accepts."""
    inputs, outputs = ports_of(name)
    given: dict[str, Any] = {port: f"/{port}" for port in [*inputs, *outputs]}
    if TASKS[name] in GATHERED:
        given = {GATHERED[TASKS[name]]: list(given.values()), **{p: f"/{p}" for p in outputs}}
    line = command(TASKS[name], task=name, recipe="demo", seed=0, overrides="", **given)
    _, arguments = parse(line)
    assert {p for p in outputs if getattr(arguments, p) == Path(f"/{p}")} == outputs
    function = ast.parse(textwrap.dedent(inspect.getsource(component_of(name).python_func)))
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert set(component_of(name).component_spec.inputs) <= used
    assert set(component_of(name).component_spec.outputs) <= used


@pytest.mark.parametrize("stage", sorted({TASKS[t] for p in PIPELINES for t in GRAPHS[p]}))
def test_a_component_reaches_the_command_line(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The body itself, called as KFP calls it: past the parser, stopped by an absent recipe."""
    component = getattr(importlib.import_module(f"components.{stage}.component"), stage)
    spec = component.component_spec
    ports = [p for p, given in spec.inputs.items() if given.type.startswith("system.")]
    artifacts = {p: dsl.Artifact(uri=str(tmp_path / p)) for p in [*ports, *spec.outputs]}
    with pytest.raises(SystemExit) as stopped:
        component.python_func(**artifacts, recipe="absent")
    assert stopped.value.code == 2
    assert "unknown recipe `absent`" in capsys.readouterr().err


def data_of(paths: list[str]) -> list[str]:
    """The data among the dependencies or outputs of a DVC stage; the rest is code."""
    return [path for path in paths if path.startswith("data/")]


def test_dvc_runs_the_same_command_line() -> None:
    """Every `cmd` parses; deps, outs and params are its inputs, outputs and section."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for name, declared in stages.items():
        words = declared["cmd"].split()
        assert words[0] == "posttrain"
        stage, arguments = parse(words[1:])
        assert arguments.task == name
        assert {name, "seed"} <= set(declared["params"])
        for ports, paths in ((stage.inputs, "deps"), (stage.outputs, "outs")):
            given = {getattr(arguments, port.name) for port in ports} - {None}
            assert set(map(str, given)) == set(data_of(declared[paths]))
        assert str(arguments.metrics) in declared["metrics"][0]


def test_dvc_has_the_edges_of_the_graph() -> None:
    """Where the two overlap: curate reads what raw writes."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    writer = {path: name for name, declared in stages.items() for path in declared["outs"]}
    for name in EDGES.keys() & stages.keys():
        read = {writer[path] for path in data_of(stages[name]["deps"])}
        assert read == {edge.split(".")[0] for edge in EDGES[name].values()}
