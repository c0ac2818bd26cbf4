"""The same graphs as plain Argo Workflows, derived from the KFP pipelines: nothing is said twice.

A task becomes a container template that runs `posttrain STAGE ...` with its artifacts mounted
at the flags' paths. What Argo cannot take from a workflow parameter without patching pods
(accelerators, memory, node labels, affinity, tolerations) is bound when the workflow is built, by
the same names.
"""

from collections.abc import Mapping
from typing import Any

from hera.workflows import (
    DAG,
    Artifact,
    CronWorkflow,
    Parameter,
    Task,
    Workflow,
    WorkflowTemplate,
)
from hera.workflows import models as m
from kfp.dsl.graph_component import GraphComponent

from pipelines.argo_containers import memo_key, template, workflow_parameter
from pipelines.graphs import Graph, graph_of, handed, run_parameters, text
from pipelines.loops import varying
from pipelines.steps import USER

NAMESPACE = "posttrain"
SERVICE_ACCOUNT = "posttrain-workflow"
KEEP_SECONDS = 14 * 24 * 3600
START_WITHIN_SECONDS = 2 * 3600
NIGHTS_KEPT = 7


def workflow(pipeline: GraphComponent, **parameters: Any) -> Workflow:
    """The graph as a Workflow, which runs as soon as it is created; `parameters` are the
    pipeline's, by name."""
    graph = graph_of(pipeline)
    with Workflow(generate_name=f"{graph.name}-", **common(graph, parameters)) as built:
        add_tasks(graph, {**graph.defaults, **parameters})
    return built


def workflow_template(pipeline: GraphComponent, **parameters: Any) -> WorkflowTemplate:
    """The graph as a WorkflowTemplate, to be started from Argo's UI with other parameters."""
    graph = graph_of(pipeline)
    with WorkflowTemplate(name=graph.name, **common(graph, parameters)) as built:
        add_tasks(graph, {**graph.defaults, **parameters})
    return built


def cron_workflow(
    pipeline: GraphComponent, schedule: str, timezone: str, **parameters: Any
) -> CronWorkflow:
    """The graph on a schedule; a run that is not finished is not overtaken, and one that could
    not begin within two hours waits for the next time."""
    graph = graph_of(pipeline)
    with CronWorkflow(
        name=graph.name,
        schedules=[schedule],
        timezone=timezone,
        concurrency_policy="Forbid",
        starting_deadline_seconds=START_WITHIN_SECONDS,
        successful_jobs_history_limit=NIGHTS_KEPT,
        failed_jobs_history_limit=NIGHTS_KEPT,
        **common(graph, parameters),
    ) as built:
        add_tasks(graph, {**graph.defaults, **parameters})
    return built


def common(graph: Graph, given: Mapping[str, Any]) -> dict[str, Any]:
    """What every kind of workflow has."""
    values = {**graph.defaults, **given}
    return {
        "namespace": NAMESPACE,
        "entrypoint": graph.name,
        "arguments": [Parameter(name=n, value=text(values[n])) for n in run_parameters(graph)],
        "service_account_name": SERVICE_ACCOUNT,
        "automount_service_account_token": False,
        "executor": m.ExecutorConfig(service_account_name=SERVICE_ACCOUNT),
        "ttl_strategy": m.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        "artifact_gc": m.WorkflowLevelArtifactGC(
            strategy="OnWorkflowDeletion", service_account_name=SERVICE_ACCOUNT
        ),
        # A pod that failed is kept for those who ask why.
        "pod_gc": m.PodGC(strategy="OnPodSuccess"),
        "security_context": m.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=USER,
            run_as_group=USER,
            fs_group=USER,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
        ),
    }


def add_tasks(graph: Graph, values: Mapping[str, Any]) -> None:
    """Add a template per task and the DAG to the workflow that is being built."""
    templates = {name: template(graph, name, values) for name in graph.tasks}
    with DAG(name=graph.name):
        for name, task in graph.tasks.items():
            Task(
                name=name,
                template=templates[name],
                dependencies=sorted(task.get("dependentTasks", [])),
                arguments=given_to(graph, name),
                with_param=workflow_parameter(task["each"]) if "each" in task else None,
            )


def given_to(graph: Graph, name: str) -> list[Parameter | Artifact]:
    """What a task gets from the DAG: the item of its loop, its key, its input artifacts."""
    task, key = graph.tasks[name], memo_key(graph, name)
    parameters = [Parameter(name=option, value="{{item}}") for option in varying(task)]
    if key:
        parameters.append(Parameter(name="memo", value=key))
    made = {
        port: f"tasks.{source['producerTask']}.outputs.artifacts.{source['outputArtifactKey']}"
        for port, source in handed(graph, task).items()
    }
    return parameters + [Artifact(name=port, from_=f"{{{{{it}}}}}") for port, it in made.items()]
