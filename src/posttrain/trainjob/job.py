"""A TrainJob: what it runs and on which machines, and the stage as it is run by one."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from posttrain import interruption
from posttrain.artifacts import Manifest, publish, read_manifest
from posttrain.durable import discard
from posttrain.errors import ConfigError, Fault
from posttrain.execution import Request, execute, expected_key, seems_held, verify_inputs
from posttrain.trainjob.api import Api, AwayError
from posttrain.trainjob.following import HOME, NODE, Following

RUNTIME = "posttrain-torch"
POLL_SECONDS = 5.0
QUEUE = "kueue.x-k8s.io/queue-name"
LABELS = ("posttrain/stage", "posttrain/task", "posttrain/pool")
PASSED = ("POSTTRAIN_", "MLFLOW_", "OMP_")
BY_HAND = (
    "without a cluster, start it on each machine yourself: torchrun --nnodes N --node-rank I"
    " --nproc-per-node G --master-addr HOST --master-port PORT -m posttrain.cli rl ..."
)


def refuse(stage: str, machines: int) -> None:
    """Raise `ConfigError` for machines that a stage has no use for."""
    if machines < 1 or (machines > 1 and stage != "rl"):
        why = "at least one is wanted" if machines < 1 else "only `rl` shares its work out"
        mend = "leave it out" if stage != "rl" else "give a number from 1"
        raise ConfigError(Fault(f"no use for {machines} machines", "--machines", why, mend))


def execute_on(
    request: Request, machines: int, poll_seconds: float = POLL_SECONDS
) -> dict[str, Any]:
    """`execute`, by a TrainJob of so many machines unless the store has the result."""
    if not request.force and seems_held(request):
        return execute(request)
    api = Api.here(BY_HAND)
    pod = api.own_pod(BY_HAND)
    manifests = verify_inputs(request)
    home = (request.run_folder or request.store).absolute() / "trainjob" / request.task
    refuse_unshared(pod, [home, request.store.absolute()])
    job = trainjob(request, staged(request, manifests, home), home, pod, machines)
    with interruption.at_work():
        Following(api, job, home, request.task, poll_seconds).until_done()
    if not seems_held(request):
        why = "what it made has another key: its image holds other code or packages than this pod"
        mend = f"give both one image: {job['spec']['trainer']['image']}"
        raise ConfigError(Fault("no result of the TrainJob", str(request.store), why, mend))
    record = execute(replace(request, force=False, costs=own_costs(request)))
    with suppress(AwayError):
        api.call("delete", "trainjobs", job["metadata"]["name"])
    discard(home)
    return record


def own_costs(request: Request) -> Callable[[Mapping[str, Any]], Mapping[str, float]] | None:
    """The account of this pod. What the store gives it was work of the TrainJob, not saved work."""
    conclude = request.costs
    return conclude and (lambda record: conclude({**record, "seconds": 0.0}))


def refuse_unshared(pod: Mapping[str, Any], folders: Sequence[Path]) -> None:
    """Raise `ConfigError` unless the folders are on volumes that other pods can mount."""
    claims = {v["name"] for v in pod["spec"].get("volumes", []) if "persistentVolumeClaim" in v}
    mounts = [
        Path(mount["mountPath"])
        for mount in worker(pod).get("volumeMounts", [])
        if mount["name"] in claims
    ]
    faults = [
        Fault(
            "not on a shared volume",
            str(folder),
            f"volumes with a claim are mounted at {', '.join(map(str, mounts)) or 'no path'}",
            "give --store and --run-folder below such a path",
        )
        for folder in folders
        if not any(folder.is_relative_to(mount) for mount in mounts)
    ]
    if faults:
        raise ConfigError(*faults)


def staged(
    request: Request, manifests: Mapping[str, Sequence[Manifest]], home: Path
) -> dict[str, list[Path]]:
    """Put the inputs where every machine finds them; what is there already may be in use."""
    places: dict[str, list[Path]] = {}
    for port, found in manifests.items():
        given = request.inputs[port]
        for number, folder in enumerate([given] if isinstance(given, Path) else given):
            place = home / "inputs" / port / str(number)
            if not place.is_dir() or read_manifest(place) != found[number]:
                publish(folder, place, found[number])
            places.setdefault(port, []).append(place)
    return places


def command(request: Request, inputs: Mapping[str, Sequence[Path]], home: Path) -> list[str]:
    """What each machine runs. The options are resolved here: its recipe may be this pod's file."""
    config = {request.task: request.config.model_dump(mode="json")}
    ports = {port: [str(place) for place in places] for port, places in inputs.items()}
    ports |= {port: [str(home / "outputs" / port)] for port in request.outputs}
    run = ["--store", str(request.store.absolute()), "--tracking", "off"]
    run += ["--run-folder", str((request.run_folder or home).absolute())]
    return [
        *("torchrun", "-m", "posttrain.trainjob", request.stage.name, "--task", request.task),
        *("--overrides", json.dumps(config, sort_keys=True)),
        *(text for port in ports for text in (f"--{port.replace('_', '-')}", *ports[port])),
        *run,
        *(["--force"] if request.force else []),
    ]


def trainjob(
    request: Request,
    inputs: Mapping[str, Sequence[Path]],
    home: Path,
    pod: Mapping[str, Any],
    machines: int,
) -> dict[str, Any]:
    """The manifest. Its machines have this pod's image, resources, nodes and labels."""
    own, labels = worker(pod), pod["metadata"].get("labels", {})
    name = hashlib.sha256(f"{home} {expected_key(request).digest}".encode()).hexdigest()[:16]
    resources = {k: v for k, v in own.get("resources", {}).items() if k in ("limits", "requests")}
    placed = {
        k: pod["spec"][k] for k in ("nodeSelector", "affinity", "tolerations") if k in pod["spec"]
    }
    told = {key: labels[key] for key in LABELS if key in labels}
    queue = {QUEUE: labels[QUEUE]} if QUEUE in labels else {}
    template = {"metadata": {"labels": told}, "spec": placed}
    node = {"name": NODE, "template": {"spec": {"template": template}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": f"{request.stage.name}-{name}", "labels": told | queue},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "TrainingRuntime",
                "name": RUNTIME,
            },
            "trainer": {
                "image": os.environ.get("POSTTRAIN_IMAGE") or own["image"],
                "command": command(request, inputs, home),
                "numNodes": machines,
                "numProcPerNode": processes(resources),
                "resourcesPerNode": resources,
                "env": [*passed(own), {"name": HOME, "value": str(home)}],
            },
            "runtimePatches": [
                {
                    "manager": "posttrain/graph",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
                }
            ],
        },
    }


def worker(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The container of a pod that runs the stage; Argo and Kubeflow call it `main`."""
    containers: list[dict[str, Any]] = pod["spec"]["containers"]
    return next((each for each in containers if each["name"] == "main"), containers[0])


def processes(resources: Mapping[str, Mapping[str, Any]]) -> int:
    """One for each accelerator of a machine (their resources bear a vendor's domain), or one."""
    limits = resources.get("limits", {})
    return max(1, sum(int(count) for name, count in limits.items() if "/" in name))


def passed(container: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Variables of this pod that its machines need: ours, and whatever is a reference."""
    for variable in container.get("env", []):
        referred = variable.get("valueFrom", {}).keys() & {"secretKeyRef", "configMapKeyRef"}
        if referred or ("value" in variable and variable["name"].startswith(PASSED)):
            yield variable
