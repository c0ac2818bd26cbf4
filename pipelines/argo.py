"""The same graphs as plain Argo Workflows, derived from the KFP pipelines: nothing is said twice.

A task becomes a container template that runs `posttrain STAGE ...` with its artifacts mounted
at the flags' paths. What Argo cannot take from a workflow parameter without patching pods
(accelerators, node labels, tolerations) is bound when the workflow is built, by the same names.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from hera.workflows import (
    DAG,
    Artifact,
    ConfigMapEnvFrom,
    Container,
    CronWorkflow,
    EmptyDirVolume,
    Env,
    ExistingVolume,
    NoneArchiveStrategy,
    Parameter,
    RetryStrategy,
    SecretEnv,
    Task,
    Workflow,
)
from hera.workflows import models as m
from kfp.dsl.graph_component import GraphComponent

from pipelines.loops import flat, varying
from pipelines.steps import BACKOFF, CONFIG, GATHERED, RETRIES, STORE_CLAIM, STORE_PATH, UI_TYPES
from posttrain.kubeflow import command
from posttrain.stages import TASKS

NAMESPACE = "posttrain"
SERVICE_ACCOUNT = "posttrain-workflow"
KEEP_SECONDS = 7 * 24 * 3600


class Graph(NamedTuple):
    """A compiled pipeline as plain dicts; `platform` holds the Kubernetes settings."""

    name: str
    tasks: dict[str, Any]
    components: dict[str, Any]
    executors: dict[str, Any]
    platform: dict[str, Any]
    defaults: dict[str, Any]


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


def workflow(pipeline: GraphComponent, **parameters: Any) -> Workflow:
    """The graph as a Workflow; `parameters` are the pipeline's, by name."""
    graph = graph_of(pipeline)
    with Workflow(generate_name=f"{graph.name}-", **common(graph, parameters)) as built:
        add_tasks(graph, {**graph.defaults, **parameters})
    return built


def cron_workflow(
    pipeline: GraphComponent, schedule: str, timezone: str, **parameters: Any
) -> CronWorkflow:
    """The graph on a schedule; a run that is not finished is not overtaken."""
    graph = graph_of(pipeline)
    with CronWorkflow(
        name=graph.name,
        schedules=[schedule],
        timezone=timezone,
        concurrency_policy="Forbid",
        **common(graph, parameters),
    ) as built:
        add_tasks(graph, {**graph.defaults, **parameters})
    return built


def common(graph: Graph, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a Workflow and a CronWorkflow have in common."""
    values = {**graph.defaults, **given}
    return {
        "namespace": NAMESPACE,
        "entrypoint": graph.name,
        "arguments": [Parameter(name=n, value=text(values[n])) for n in run_parameters(graph)],
        "service_account_name": SERVICE_ACCOUNT,
        "ttl_strategy": m.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        "security_context": m.PodSecurityContext(
            run_as_non_root=True,
            fs_group=1000,
            seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
        ),
    }


def run_parameters(graph: Graph) -> list[str]:
    """The pipeline parameters that reach a command line."""
    return sorted(
        {
            given["componentInputParameter"]
            for task in graph.tasks.values()
            for name, given in task["inputs"]["parameters"].items()
            if "componentInputParameter" in given and not name.startswith("pipelinechannel--")
        }
        | {task["each"] for task in graph.tasks.values() if "each" in task}
    )


def text(value: Any) -> str:
    """A parameter value as Argo holds it; KFP keeps whole numbers as floats."""
    if isinstance(value, list):
        return json.dumps(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def add_tasks(graph: Graph, values: Mapping[str, Any]) -> None:
    """Add a template per task and the DAG to the workflow that is being built."""
    templates = {name: template(graph, name, values) for name in graph.tasks}
    with DAG(name=graph.name):
        for name, task in graph.tasks.items():
            Task(
                name=name,
                template=templates[name],
                dependencies=sorted(task.get("dependentTasks", [])),
                arguments=[
                    *(Parameter(name=name, value="{{item}}") for name in varying(task)),
                    *(
                        Artifact(
                            name=port,
                            from_=f"{{{{tasks.{source['producerTask']}.outputs.artifacts"
                            f".{source['outputArtifactKey']}}}}}",
                        )
                        for port, source in handed(graph, task).items()
                    ),
                ],
                with_param=workflow_parameter(task["each"]) if "each" in task else None,
            )


def workflow_parameter(name: str) -> str:
    """What stands for a workflow parameter in a template."""
    return f"{{{{workflow.parameters.{name}}}}}"


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


def in_store(task: str, port: str, item: str) -> str:
    """Where a task in a loop writes."""
    return f"{STORE_PATH}/runs/{{{{workflow.name}}}}/{task}/{port}/{item}"


def template(graph: Graph, name: str, values: Mapping[str, Any]) -> Container:
    """The container that runs one task."""
    task = graph.tasks[name]
    executor = graph.components[task["componentRef"]["name"]]["executorLabel"]
    container = graph.executors[executor]["container"]
    return Container(
        name=name,
        image=container["image"],
        command=["posttrain"],
        args=arguments(graph, name, values),
        inputs=[
            *(Parameter(name=option) for option in varying(task)),
            *(Artifact(name=port, path=f"/tmp/inputs/{port}") for port in handed(graph, task)),
        ],
        outputs=[
            Artifact(name=port, path=f"/tmp/outputs/{port}", archive=NoneArchiveStrategy())
            for port in (() if "each" in task else output_ports(graph, task))
        ],
        env=[
            Env(name="HOME", value="/tmp"),
            *(Env(name=given["name"], value=given["value"]) for given in container["env"]),
            *secrets(graph.platform[executor]),
        ],
        env_from=[ConfigMapEnvFrom(name=CONFIG)],
        volumes=[
            EmptyDirVolume(name="tmp", mount_path="/tmp"),
            ExistingVolume(name="store", claim_name=STORE_CLAIM, mount_path=STORE_PATH),
        ],
        retry_strategy=RetryStrategy(
            limit=str(RETRIES),
            retry_policy="Always",
            expression='lastRetry.status == "Error" || asInt(lastRetry.exitCode) == 75',
            backoff=m.Backoff(duration=BACKOFF, factor="2", max_duration="1h"),
        ),
        security_context=m.SecurityContext(
            run_as_non_root=True,
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=m.Capabilities(drop=["ALL"]),
            seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
        ),
        **placement(container, graph.platform[executor], values),
    )


def output_ports(graph: Graph, task: Mapping[str, Any]) -> list[str]:
    """What a task writes, without what only KFP's UI shows."""
    artifacts = graph.components[task["componentRef"]["name"]]["outputDefinitions"]["artifacts"]
    return sorted(
        port
        for port, given in artifacts.items()
        if given["artifactType"]["schemaTitle"] not in UI_TYPES
    )


def arguments(graph: Graph, name: str, values: Mapping[str, Any]) -> list[str]:
    """The command line of a task, its parameters taken from the workflow's."""
    task, task_name = graph.tasks[name], name.replace("-", "_")
    stage = TASKS[task_name]
    ports: dict[str, Any] = {port: f"/tmp/inputs/{port}" for port in handed(graph, task)}
    for port, source in sources(task).items():
        if each := graph.tasks[source["producerTask"]].get("each"):
            made = source["producerTask"], source["outputArtifactKey"]
            ports[port] = [in_store(*made, item) for item in values[each]]
    if stage in GATHERED:
        ports = {GATHERED[stage]: list(ports.values())}
    parameters = {
        option: workflow_parameter(given["componentInputParameter"])
        for option, given in sorted(task["inputs"]["parameters"].items())
        if "componentInputParameter" in given and not option.startswith("pipelinechannel--")
    }
    items = {option: f"{{{{inputs.parameters.{option}}}}}" for option in varying(task)}
    for port in output_ports(graph, task):
        ports[port] = f"/tmp/outputs/{port}"
        if items:
            ports[port] = in_store(name, port, "/".join(items.values()))
    folder = ["--run-folder", f"{STORE_PATH}/runs/{{{{workflow.name}}}}"]
    return [*command(stage, task=task_name, **parameters, **items, **ports), *folder]


def secrets(platform: Mapping[str, Any]) -> list[SecretEnv]:
    """Variables from Secrets; a Secret that is not there leaves them unset."""
    return [
        SecretEnv(
            name=key["envVar"],
            secret_name=given["secretName"],
            secret_key=key["secretKey"],
            optional=given["optional"],
        )
        for given in platform.get("secretAsEnv", [])
        for key in given["keyToEnv"]
    ]


def placement(
    container: Mapping[str, Any], platform: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Node labels, tolerations and accelerators of a task, with the given values."""
    placed: dict[str, Any] = {}
    nodes = platform["nodeSelector"]["nodeSelectorJson"]["componentInputParameter"]
    labels = values[nodes.removeprefix("pipelinechannel--")]
    if labels:
        placed["node_selector"] = dict(labels)
    tolerations = [
        m.Toleration(**toleration)
        for given in platform.get("tolerations", [])
        for toleration in values[given["tolerationJson"]["componentInputParameter"]]
    ]
    if tolerations:
        placed["tolerations"] = tolerations
    asked = container.get("resources", {}).get("accelerator")
    if asked and int(resolved(asked["resourceCount"], values)):
        kind, count = (resolved(asked[key], values) for key in ("resourceType", "resourceCount"))
        placed["resources"] = m.ResourceRequirements(limits={kind: count}, requests={kind: count})
    return placed


def resolved(placeholder: str, values: Mapping[str, Any]) -> str:
    """The value of a KFP placeholder for a pipeline parameter."""
    found = re.search(r"pipelinechannel--(\w+)", placeholder)
    return str(values[found[1]]) if found else placeholder
