"""The pods that our manifests, graphs and jobs become, put together as their controllers do it."""

import copy
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.k8s.policy import Object, Pod

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
OVERLAYS = ("cpu", "gpu", "spot", "tenants")
COMPILED = ROOT / "pipelines/compiled"
SCHEMAS = ROOT / os.environ.get("POSTTRAIN_SCHEMAS", "../shared/schemas")

POD_PATHS = {
    "Pod": ("",),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
PODLESS = {
    "ClusterQueue",
    "Cohort",
    "ConfigMap",
    "HorizontalPodAutoscaler",
    "LimitRange",
    "LocalQueue",
    "Namespace",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceFlavor",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "WorkloadPriorityClass",
}
RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
JOBSET = "jobset.sigs.k8s.io/jobset-name"
WORKFLOW = "workflows.argoproj.io/workflow"


@cache
def overlay(name: str) -> tuple[Object, ...]:
    """What `kubectl kustomize` makes of an overlay."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(K8S / "overlays" / name)],
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(yaml.safe_load_all(done.stdout))


def pods_of(objects: Sequence[Object]) -> list[Pod]:
    """The pods of plain objects and of the runtimes of TrainJobs.

    Raises KeyError for a kind that is not known, lest its pods go unseen.
    """
    found = []
    for thing in objects:
        kind, metadata = thing["kind"], thing["metadata"]
        where, space = f"{kind} {metadata['name']}", metadata.get("namespace", "")
        if kind in RUNTIMES:
            found += list(runtime_pods(thing))
        elif kind not in PODLESS:
            template = thing
            for key in filter(None, POD_PATHS[kind]):
                template = template[key]
            labels = template["metadata"].get("labels", {})
            found.append(Pod(where, "manifest", space, labels, template["spec"]))
    return found


def runtime_pods(runtime: Object) -> Iterator[Pod]:
    """The pods of each job of a runtime, as a TrainJob without settings of its own makes them."""
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        labels = {JOBSET: "any", **template.get("metadata", {}).get("labels", {})}
        where = f"{runtime['kind']} {runtime['metadata']['name']}: {job['name']}"
        space = runtime["metadata"].get("namespace", "")
        yield Pod(where, "runtime", space, labels, template["spec"])


def trainjob_pod(runtime: Object, job: Object) -> Pod:
    """A machine of a TrainJob: the runtime's pod with the job's image, resources and patches."""
    (pod,) = runtime_pods(runtime)
    trainer, spec = job["spec"]["trainer"], copy.deepcopy(pod.spec)
    (container,) = spec["containers"]
    container.update(image=trainer["image"], command=trainer["command"])
    container["resources"] = trainer["resourcesPerNode"]
    container["env"] = container["env"] + trainer["env"]
    labels = dict(pod.labels)
    for patch in job["spec"]["runtimePatches"]:
        replicated = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        for template in (node["template"]["spec"]["template"] for node in replicated):
            spec.update(template.get("spec", {}))
            labels |= template["metadata"]["labels"]
    return Pod(f"TrainJob {job['metadata']['name']}", "trainjob", pod.namespace, labels, spec)


def executor() -> Object:
    """What Argo's controller is told about the containers that it adds."""
    settings = yaml.safe_load((K8S / "argo/controller.yaml").read_text(encoding="utf-8"))
    return dict(yaml.safe_load(settings["data"]["executor"]))


def argo_pods(manifest: Object) -> Iterator[Pod]:
    """The pods of a Workflow, WorkflowTemplate or CronWorkflow: the template's settings before
    the workflow's, with the containers `init` and `wait` that the controller adds."""
    spec = manifest["spec"].get("workflowSpec", manifest["spec"])
    name = manifest["metadata"].get("name") or manifest["metadata"]["generateName"]
    for template in spec["templates"]:
        if {"dag", "steps", "suspend"} & template.keys():
            continue
        assert "container" in template, f"{name}: {sorted(template)} is no pod that is known here"
        for part in (spec, template, spec.get("templateDefaults", {})):
            assert "podSpecPatch" not in part, f"{name}: {template['name']} patches its pod"
        helper = {"image": "localhost/argoexec:any", **executor()}
        pod = {
            key: template.get(key, spec.get(key))
            for key in ("securityContext", "serviceAccountName", "automountServiceAccountToken")
            if template.get(key, spec.get(key)) is not None
        }
        for key in ("hostNetwork", "hostPID", "hostIPC", "priorityClassName", "nodeSelector"):
            if spec.get(key) or template.get(key):
                pod[key] = template.get(key) or spec[key]
        pod["initContainers"] = [{"name": "init", **helper}, *template.get("initContainers", [])]
        main = {"name": "main", **template["container"]}
        pod["containers"] = [{"name": "wait", **helper}, main, *template.get("sidecars", [])]
        pod["volumes"] = [*spec.get("volumes", []), *template.get("volumes", [])]
        labels = {
            WORKFLOW: name,
            **spec.get("podMetadata", {}).get("labels", {}),
            **template.get("metadata", {}).get("labels", {}),
        }
        space = manifest["metadata"].get("namespace", "")
        yield Pod(f"{name} on Argo: {template['name']}", "argo", space, labels, pod)


KFP_CONTAINER: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the compiler of KFP's API server (2.16 and later) sets on a task's container itself; on
the pod it sets the seccomp profile. Read-only roots it can set for nobody."""


def kfp_pods(name: str, spec: Object, platform: Object) -> Iterator[Pod]:
    """The pods of a compiled pipeline: the IR's container, the platform's settings, KFP's own."""
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for key, given in spec["deploymentSpec"]["executors"].items():
        settings, container = executors[key], given["container"]
        context = KFP_CONTAINER | settings.get("securityContext", {})
        for number in ("runAsUser", "runAsGroup"):
            if number in context:
                context[number] = int(context[number])
        limits = container.get("resources", {})
        volumes: list[Object] = [
            {"name": claim["constant"], "persistentVolumeClaim": {"claimName": claim["constant"]}}
            for claim in settings.get("pvcMount", [])
        ]
        volumes += [
            {"name": m["volumeName"], "emptyDir": {}} for m in settings.get("emptyDirMounts", [])
        ]
        volumes += [
            {"name": m["configMapName"], "configMap": {"name": m["configMapName"]}}
            for m in settings.get("configMapAsVolume", [])
        ]
        env = [{"name": e["name"], "value": e["value"]} for e in container.get("env", [])]
        main = {
            "name": "main",
            "image": container["image"],
            "command": container["command"],
            "args": container["args"],
            "env": env,
            "resources": {"limits": {"memory": limits.get("resourceMemoryLimit")}},
            "securityContext": context,
        }
        pod = {
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "serviceAccountName": "default-editor",
            "containers": [main],
            "volumes": volumes,
        }
        labels = {"pipeline/runid": "any", **settings.get("podMetadata", {}).get("labels", {})}
        yield Pod(f"{name} on Kubeflow: {key}", "kfp", "posttrain", labels, pod)


def graph_pods() -> list[Pod]:
    """Every pod of every compiled graph."""
    found: list[Pod] = []
    for path in sorted(COMPILED.glob("*.yaml")):
        documents: list[Any] = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        if path.name.endswith(".kfp.yaml"):
            found += kfp_pods(path.name.split(".")[0], *documents)
        else:
            found += [pod for manifest in documents for pod in argo_pods(manifest)]
    return found


def compose_pods() -> Iterator[Pod]:
    """The services of MLflow's compose file, with what Docker sets on a container by itself."""
    file = yaml.safe_load((ROOT / "mlflow/compose.yaml").read_text(encoding="utf-8"))
    for name, service in file["services"].items():
        options = service.get("security_opt", [])
        container = {
            "name": name,
            "image": service["image"],
            # What is taken from the environment of whoever starts it is no value of ours.
            "env": [
                {"name": key, "value": "" if str(value).startswith("${") else str(value or "")}
                for key, value in service["environment"].items()
            ],
            "resources": {"limits": {"memory": service.get("mem_limit")}},
            "securityContext": {
                "privileged": service.get("privileged", False),
                "readOnlyRootFilesystem": service.get("read_only", False),
                "allowPrivilegeEscalation": "no-new-privileges:true" not in options,
                "runAsNonRoot": int(str(service.get("user", "0")).split(":")[0]) > 0,
                "capabilities": {
                    "drop": service.get("cap_drop", []),
                    "add": service.get("cap_add", []),
                },
                "seccompProfile": {
                    "type": "Unconfined" if "seccomp:unconfined" in options else "RuntimeDefault"
                },
            },
        }
        spec = {
            "containers": [container],
            "automountServiceAccountToken": False,
            "hostNetwork": service.get("network_mode") == "host",
            "hostPID": service.get("pid") == "host",
            "hostIPC": service.get("ipc") == "host",
        }
        yield Pod(f"compose: {name}", "compose", "", {}, spec)
