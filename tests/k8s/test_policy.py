"""The policy holds for every pod that we produce, and each of its rules can fail."""

import copy
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.k8s import pods
from tests.k8s.policy import OURS, POD_RULES, RESTRICTED, Object, Pod
from tests.k8s.set_policy import SET_RULES, of_kind

from posttrain.config import resolve
from posttrain.execution import Request
from posttrain.stages import load_stage
from posttrain.trainjob.job import trainjob

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on this machine")

EXCEPT = {
    ("read_only_root", "kfp"): "KFP's SDK and server have no field for it",
    ("memory_limit", "runtime"): "a TrainJob brings the limits of the pod that starts it",
    ("image", "compose"): "a laptop takes Postgres by its release",
    ("token", "kfp"): "KFP's launcher reports to the API with the profile's account",
}
"""(rule, maker) -> why pods of that maker cannot keep it; never one of the restricted profile."""


def broken(pod: Pod) -> dict[str, list[str]]:
    """Rule -> what is wrong with the pod, exceptions left out."""
    told = {
        rule: list(check(pod))
        for rule, check in POD_RULES.items()
        if (rule, pod.maker) not in EXCEPT
    }
    if pod.maker == "argo":
        # Argo writes into the roots of its own containers.
        told["read_only_root"] = [c for c in told["read_only_root"] if c not in ("init", "wait")]
    return {rule: faults for rule, faults in told.items() if faults}


def made(name: str) -> tuple[list[Object], list[Pod]]:
    """An overlay's objects and pods, those of the graphs that run in its namespaces with them."""
    objects = list(pods.overlay(name))
    return objects, [*pods.pods_of(objects), *graph_pods()]


@cache
def graph_pods() -> list[Pod]:
    return pods.graph_pods()


@needs_kubectl
@pytest.mark.parametrize("name", pods.OVERLAYS)
def test_pods_of_an_overlay_keep_every_rule(name: str) -> None:
    found = pods.pods_of(pods.overlay(name))
    assert len(found) >= 4
    assert {pod.where: faults for pod in found if (faults := broken(pod))} == {}


def test_pods_of_graphs_keep_every_rule() -> None:
    makers = [pod.maker for pod in graph_pods()]
    assert makers.count("argo") == makers.count("kfp") > 10
    assert {pod.where: faults for pod in graph_pods() if (faults := broken(pod))} == {}


def test_services_of_the_compose_file_keep_every_rule() -> None:
    assert {pod.where: faults for pod in pods.compose_pods() if (faults := broken(pod))} == {}


@needs_kubectl
def test_the_machines_of_a_trainjob_keep_every_rule(tmp_path: Path) -> None:
    """Those of the job that the task `rl` starts from its pod on Argo."""
    starter = next(p for p in graph_pods() if p.where == "posttraining on Argo: rl")
    stage = load_stage("rl")
    request = Request(stage, "rl", resolve(stage.config, "rl", "rl", [], {}), {}, {}, tmp_path)
    own = {"metadata": {"labels": starter.labels}, "spec": starter.spec}
    objects = list(pods.overlay("gpu"))
    (runtime,) = of_kind(objects, "TrainingRuntime")
    pod = pods.trainjob_pod(runtime, trainjob(request, {}, tmp_path, own, 2))
    assert broken(pod) == {}
    assert pod.labels["posttrain/stage"] == "rl"
    assert list(SET_RULES["selected_pods"](objects, [pod])) == []


@needs_kubectl
@pytest.mark.parametrize("name", pods.OVERLAYS)
def test_an_overlay_keeps_every_rule(name: str) -> None:
    objects, all_pods = made(name)
    told = {rule: list(check(objects, all_pods)) for rule, check in SET_RULES.items()}
    assert {rule: faults for rule, faults in told.items() if faults} == {}


@needs_kubectl
def test_exceptions_are_needed_and_never_of_the_profile() -> None:
    all_pods = [*made("gpu")[1], *pods.compose_pods()]
    for rule, maker in EXCEPT:
        assert rule not in RESTRICTED
        assert any(list(OURS[rule](pod)) for pod in all_pods if pod.maker == maker)


def first(spec: Object) -> Object:
    return spec["containers"][0]


def context(spec: Object) -> Object:
    return first(spec)["securityContext"]


POD_PLANTS: dict[str, Callable[[Object], object]] = {
    "host_process": lambda s: context(s).update(windowsOptions={"hostProcess": True}),
    "host_namespaces": lambda s: s.update(hostPID=True),
    "privileged": lambda s: context(s).update(privileged=True),
    "capabilities": lambda s: context(s).update(
        capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    ),
    "volume_types": lambda s: s["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    "host_ports": lambda s: first(s).update(ports=[{"containerPort": 80, "hostPort": 80}]),
    "host_probes": lambda s: first(s).update(livenessProbe={"httpGet": {"host": "10.0.0.1"}}),
    "apparmor": lambda s: context(s).update(appArmorProfile={"type": "Unconfined"}),
    "selinux": lambda s: context(s).update(seLinuxOptions={"type": "spc_t"}),
    "proc_mount": lambda s: context(s).update(procMount="Unmasked"),
    "sysctls": lambda s: s["securityContext"].update(sysctls=[{"name": "kernel.msgmax"}]),
    "seccomp": lambda s: s["securityContext"].pop("seccompProfile"),
    "privilege_escalation": lambda s: context(s).pop("allowPrivilegeEscalation"),
    "non_root": lambda s: s["securityContext"].pop("runAsNonRoot"),
    "root_user": lambda s: s["securityContext"].update(runAsUser=0),
    "read_only_root": lambda s: context(s).pop("readOnlyRootFilesystem"),
    "memory_limit": lambda s: first(s)["resources"].pop("limits"),
    "token": lambda s: s.pop("automountServiceAccountToken"),
    "image": lambda s: first(s).update(image="python:latest"),
    "secret_values": lambda s: first(s)["env"].append({"name": "HF_TOKEN", "value": "abc"}),
}
"""Rule -> a change to a good pod that breaks it."""


def good_pod() -> Pod:
    server = next(p for p in pods.pods_of(pods.overlay("cpu")) if p.where == "Deployment mlflow")
    return server._replace(spec=copy.deepcopy(server.spec))


@needs_kubectl
@pytest.mark.parametrize("rule", POD_RULES)
def test_a_planted_violation_of_a_pod_is_found(rule: str) -> None:
    pod = good_pod()
    assert list(POD_RULES[rule](pod)) == []
    POD_PLANTS[rule](pod.spec)
    assert list(POD_RULES[rule](pod))
    assert rule in broken(pod)


def metadata(name: str, space: str = "posttrain") -> Object:
    return {"name": name, "namespace": space}


def role(*rules: Object) -> Object:
    return {"kind": "Role", "metadata": metadata("planted"), "rules": list(rules)}


def policy(space: str = "posttrain", **spec: Any) -> Object:
    ways = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    return {"kind": "NetworkPolicy", "metadata": metadata("planted", space), "spec": ways | spec}


EVERYWHERE = {"ipBlock": {"cidr": "0.0.0.0/0"}}
SET_PLANTS: dict[str, list[Object]] = {
    "restricted_namespaces": [{"kind": "Namespace", "metadata": {"name": "planted"}}],
    "known_namespaces": [{"kind": "ConfigMap", "metadata": metadata("planted", "default")}],
    "default_deny": [{"kind": "Namespace", "metadata": {"name": "planted", "labels": {}}}],
    "selected_pods": [],
    "narrow_peers": [
        policy(ingress=[{"ports": [{"port": 80}]}]),
        policy(ingress=[{"from": [{"namespaceSelector": {}}]}]),
        policy(egress=[{}]),
        policy(egress=[{"to": [EVERYWHERE]}]),
        policy(egress=[{"to": [EVERYWHERE], "ports": [{"port": 443}]}]),
    ],
    "closed_sandbox": [policy("posttrain-sandbox", egress=[{"ports": [{"port": 53}]}])],
    "narrow_roles": [
        role({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}),
        role({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
        role({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}),
        role({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["x"], "verbs": ["bind"]}),
        {"kind": "ClusterRole", "metadata": {"name": "planted"}},
    ],
    "bound_subjects": [
        {
            "kind": "RoleBinding",
            "metadata": metadata("planted"),
            "roleRef": {"name": "posttrain-reader"},
            "subjects": [subject],
        }
        for subject in (
            {"kind": "Group", "name": "system:authenticated"},
            {"kind": "ServiceAccount", "name": "default", "namespace": "default"},
        )
    ],
    "no_secrets": [
        {"kind": "Secret", "metadata": metadata("planted"), "data": {"a": "YQ=="}},
        {"kind": "ConfigMap", "metadata": metadata("planted"), "data": {"a": "password = hunter2"}},
        {"kind": "ConfigMap", "metadata": metadata("planted"), "data": {"a": "s3://me:key@host"}},
    ],
    "inner_services": [
        {"kind": "Service", "metadata": metadata("planted"), "spec": {"type": "LoadBalancer"}},
        {"kind": "Ingress", "metadata": metadata("planted")},
    ],
}
"""Rule -> objects, each of which breaks it."""


@needs_kubectl
@pytest.mark.parametrize("rule", SET_RULES)
def test_a_planted_violation_of_a_set_is_found(rule: str) -> None:
    objects, all_pods = made("spot")
    check = SET_RULES[rule]
    assert list(check(objects, all_pods)) == []
    for planted in SET_PLANTS[rule]:
        assert list(check([*objects, planted], all_pods)), planted
    if rule == "selected_pods":
        for given in of_kind(objects, "NetworkPolicy"):
            if given["metadata"]["name"] == "default-deny":
                objects.remove(given)
        stray = Pod("stray", "manifest", "posttrain", {"app": "stray"}, {})
        assert list(check(objects, [stray]))


def test_no_plant_is_without_a_rule() -> None:
    assert POD_PLANTS.keys() == POD_RULES.keys()
    assert SET_PLANTS.keys() == SET_RULES.keys()
