"""A task as a container template of Argo: its command line, its pod and its retries."""

from collections.abc import Mapping
from typing import Any

from hera.workflows import (
    Artifact,
    ConfigMapEnvFrom,
    ConfigMapVolume,
    Container,
    EmptyDirVolume,
    Env,
    ExistingVolume,
    Parameter,
    RetryStrategy,
    SecretEnv,
    TarArchiveStrategy,
)
from hera.workflows import models as m

from pipelines.graphs import Graph, chosen, handed, output_ports, resolved, sources
from pipelines.loops import varying
from pipelines.steps import (
    BACKOFF,
    CA_CONFIG,
    CA_PATH,
    CONFIG,
    GATHERED,
    RETRIES,
    STORE_CLAIM,
    STORE_PATH,
)
from posttrain.errors import ConfigError, Fault
from posttrain.kubeflow import command
from posttrain.stages import TASKS, load_stage

DIGEST_PATH = "/tmp/digest"
RETRY_WHEN = (
    'lastRetry.status == "Error" || '
    'lastRetry.message matches "(?i)node shutdown|evicted|preempt|node was low on" || '
    '(asInt(lastRetry.exitCode) == 75 && !(lastRetry.message matches "(?i)deadline"))'
)
"""A pod that was lost or driven out, or says it may be tried again; not one whose time was up."""

CACHE, CACHE_HOURS = "posttrain-memo", 72
"""The ConfigMap of memoized results and how long they count. What they point to is deleted with
the workflow that made it, so this is shorter than what a finished workflow is kept."""

UNCOMPRESSED = TarArchiveStrategy(compression_level=0)
"""A folder as one object, for garbage collection deletes no bare folders; weights do not shrink."""


def workflow_parameter(name: str) -> str:
    """What stands for a workflow parameter in a template."""
    return f"{{{{workflow.parameters.{name}}}}}"


def in_store(task: str, port: str, item: str) -> str:
    """Where a task in a loop writes."""
    return f"{STORE_PATH}/runs/{{{{workflow.name}}}}/{task}/{port}/{item}"


def template(graph: Graph, name: str, values: Mapping[str, Any]) -> Container:
    """The container template that runs one task."""
    task = graph.tasks[name]
    container, platform = graph.executor(name)
    memoized = memo_key(graph, name) is not None
    return Container(
        name=name,
        labels=dict(sorted(platform["podMetadata"]["labels"].items())),
        image=container["image"],
        command=["posttrain"],
        args=arguments(graph, name, values),
        inputs=[
            *(Parameter(name=option) for option in varying(task)),
            *([Parameter(name="memo")] if memoized else []),
            *(Artifact(name=port, path=f"/tmp/inputs/{port}") for port in handed(graph, task)),
        ],
        outputs=[
            Parameter(name="digest", value_from=m.ValueFrom(path=DIGEST_PATH)),
            *(
                Artifact(name=port, path=f"/tmp/outputs/{port}", archive=UNCOMPRESSED)
                for port in (() if "each" in task else output_ports(graph, task))
            ),
        ],
        env=[
            Env(name="HOME", value="/tmp"),
            *(Env(name=given["name"], value=given["value"]) for given in container["env"]),
            *secrets(platform),
        ],
        env_from=[ConfigMapEnvFrom(name=CONFIG)],
        volumes=[
            EmptyDirVolume(name="tmp", mount_path="/tmp"),
            ExistingVolume(name="store", claim_name=STORE_CLAIM, mount_path=STORE_PATH),
            ConfigMapVolume(name=CA_CONFIG, mount_path=CA_PATH, optional=True, read_only=True),
        ],
        active_deadline_seconds=platform["activeDeadlineSeconds"],
        # Of all tasks only this one asks the Kubernetes API for anything: for its machines.
        automount_service_account_token=True if "machines" in chosen(task) else None,
        memoize=remembered() if memoized else None,
        synchronization=turns(task),
        retry_strategy=RetryStrategy(
            limit=str(RETRIES),
            retry_policy="Always",
            expression=RETRY_WHEN,
            # Not `max_duration`: it runs from the first attempt, however long that worked.
            backoff=m.Backoff(duration=BACKOFF, factor="2", cap="10m"),
        ),
        security_context=m.SecurityContext(
            run_as_non_root=True,
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=m.Capabilities(drop=["ALL"]),
            seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
        ),
        **placement(container, platform, values),
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
    parameters: dict[str, Any] = {
        option: workflow_parameter(given) for option, given in chosen(task).items()
    }
    items = {option: f"{{{{inputs.parameters.{option}}}}}" for option in varying(task)}
    for port in output_ports(graph, task):
        ports[port] = f"/tmp/outputs/{port}"
        if items:
            ports[port] = in_store(name, port, "/".join(items.values()))
    run = ["--run-folder", f"{STORE_PATH}/runs/{{{{workflow.name}}}}", "--digest", DIGEST_PATH]
    return [*command(stage, task=task_name, **parameters, **items, **ports), *run]


def memo_key(graph: Graph, name: str) -> str | None:
    """The digest of what decides a task's result, as an expression for the DAG; None where that
    is not all: for a stage that looks at the world outside (`still_holds`), and in a loop, whose
    results stay in the folder of their run.

    The image must be named by digest, for behind a tag there may be other code tomorrow. A recipe
    that is a file may change too; so with one the result counts for its own workflow alone.
    """
    task, image = graph.tasks[name], graph.executor(name)[0]["image"]
    made_by = sorted({source["producerTask"] for source in sources(task).values()})
    if "@sha256:" not in image or any("each" in graph.tasks[each] for each in (name, *made_by)):
        return None
    if load_stage(TASKS[name.replace("-", "_")]).still_holds:
        return None
    given = [parameter for parameter in chosen(task).values() if parameter != "budget"]
    parts = [
        f"'{image}'",
        f"'{name}'",
        *(f"workflow.parameters['{parameter}']" for parameter in given),
        *(f"tasks['{each}'].outputs.parameters['digest']" for each in made_by),
        "(workflow.parameters['recipe'] contains '/' ? workflow.uid : '')",
    ]
    return f"{{{{=sprig.sha256sum(toJson([{', '.join(parts)}]))}}}}"


def remembered() -> m.Memoize:
    """The result of a task by its key. The key is an argument, for Argo leaves an expression that
    stands here as it is at times."""
    return m.Memoize(
        key="{{inputs.parameters.memo}}",
        max_age=f"{CACHE_HOURS}h",
        cache=m.Cache(config_map=m.LocalObjectReference(name=CACHE)),
    )


def turns(task: Mapping[str, Any]) -> m.Synchronization | None:
    """Gates of one champion, in whatever workflows of the namespace, decide one after another."""
    champion = chosen(task).get("model_name")
    if champion is None:
        return None
    name = f"champion-{workflow_parameter(champion)}"
    return m.Synchronization(mutexes=[m.Mutex(name=name)])


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
    """Where a task runs and what its pod gets, with the given values."""
    placed: dict[str, Any] = {}
    nodes = platform["nodeSelector"]["nodeSelectorJson"]["componentInputParameter"]
    if labels := values[nodes.removeprefix("pipelinechannel--")]:
        placed["node_selector"] = dict(labels)
    tolerations = [
        exactly(m.Toleration, toleration, "tolerations")
        for given in platform.get("tolerations", [])
        for toleration in values[given["tolerationJson"]["componentInputParameter"]]
    ]
    if tolerations:
        placed["tolerations"] = tolerations
    for given in platform.get("nodeAffinity", []):
        parameter = given["nodeAffinityJson"]["componentInputParameter"]
        if values[parameter]:
            node_affinity = exactly(m.NodeAffinity, values[parameter], parameter)
            placed["affinity"] = m.Affinity(node_affinity=node_affinity)
    asked = container["resources"]
    memory = resolved(asked["resourceMemoryRequest"], values)
    requests = {"cpu": asked["resourceCpuRequest"], "memory": memory}
    limits = {"memory": memory}
    if "accelerator" in asked:
        counted = asked["accelerator"]
        kind, count = (resolved(counted[key], values) for key in ("resourceType", "resourceCount"))
        if int(count):
            requests, limits = requests | {kind: count}, limits | {kind: count}
    placed["resources"] = m.ResourceRequirements(requests=requests, limits=limits)
    return placed


def exactly(model: Any, given: Mapping[str, Any], where: str) -> Any:
    """The Kubernetes object that was given as JSON; a key that is none is an error, not dropped."""
    try:
        made = model.model_validate(given)
    except ValueError as error:
        raise ConfigError(Fault(f"bad `{where}`", where, str(error), "see its schema")) from None
    if made.model_dump(by_alias=True, exclude_none=True, mode="json") != given:
        why = "some of its keys are none of Kubernetes"
        raise ConfigError(Fault(f"bad `{where}`", where, why, "see the schema of Kubernetes"))
    return made
