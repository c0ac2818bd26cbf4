"""A compiled KFP pipeline as plain data: what other forms of the same graph are derived from."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from kfp.dsl.graph_component import GraphComponent

from pipelines.loops import flat
from pipelines.steps import UI_TYPES


class Graph(NamedTuple):
    """A compiled pipeline as plain dicts; `platform` holds the Kubernetes settings."""

    name: str
    tasks: dict[str, Any]
    components: dict[str, Any]
    executors: dict[str, Any]
    platform: dict[str, Any]
    defaults: dict[str, Any]

    def executor(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The container of a task, and the Kubernetes settings of its pod."""
        label = self.components[self.tasks[name]["componentRef"]["name"]]["executorLabel"]
        return self.executors[label]["container"], self.platform[label]


def graph_of(pipeline: GraphComponent) -> Graph:
    """Read the compiled form of a KFP pipeline."""
    spec = MessageToDict(pipeline.pipeline_spec)
    platform = MessageToDict(pipeline.platform_spec)["platforms"]["kubernetes"]
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    return Graph(
        name=spec["pipelineInfo"]["name"],
        tasks=flat(spec["root"]["dag"]["tasks"], spec["components"]),
        components=spec["components"],
        executors=spec["deploymentSpec"]["executors"],
        platform=platform["deploymentSpec"]["executors"],
        defaults={name: given.get("defaultValue") for name, given in sorted(inputs.items())},
    )


def sources(task: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Input port -> the task and port it comes from."""
    artifacts = task["inputs"].get("artifacts", {})
    return {port: given["taskOutputArtifact"] for port, given in sorted(artifacts.items())}


def handed(graph: Graph, task: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The sources that Argo hands over; it gathers no artifacts of a loop, so these stay in the
    store."""
    return {
        port: source
        for port, source in sources(task).items()
        if "each" not in graph.tasks[source["producerTask"]]
    }


def output_ports(graph: Graph, task: Mapping[str, Any]) -> list[str]:
    """What a task writes, without what only KFP's UI shows."""
    artifacts = graph.components[task["componentRef"]["name"]]["outputDefinitions"]["artifacts"]
    return sorted(
        port
        for port, given in artifacts.items()
        if given["artifactType"]["schemaTitle"] not in UI_TYPES
    )


def chosen(task: Mapping[str, Any]) -> dict[str, str]:
    """Option of a task -> the pipeline parameter that it takes its value from."""
    return {
        option: given["componentInputParameter"]
        for option, given in sorted(task["inputs"]["parameters"].items())
        if "componentInputParameter" in given and not option.startswith("pipelinechannel--")
    }


def run_parameters(graph: Graph) -> list[str]:
    """The pipeline parameters that reach a command line."""
    tasks = graph.tasks.values()
    used = {parameter for task in tasks for parameter in chosen(task).values()}
    return sorted(used | {task["each"] for task in tasks if "each" in task})


def text(value: Any) -> str:
    """A parameter value as Argo holds it; KFP keeps whole numbers as floats."""
    if isinstance(value, list):
        return json.dumps(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def resolved(placeholder: str, values: Mapping[str, Any]) -> str:
    """The value of a KFP placeholder for a pipeline parameter."""
    found = re.search(r"pipelinechannel--(\w+)", placeholder)
    return str(values[found[1]]) if found else placeholder
