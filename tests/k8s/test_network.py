"""Who reaches whom, by the NetworkPolicies of an overlay read as the cluster reads them."""

import shutil
from collections.abc import Sequence

import pytest
from tests.k8s import pods
from tests.k8s.policy import Object, Pod
from tests.k8s.set_policy import of_kind, selects

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on this machine")


def admits(peers: Sequence[Object], objects: Sequence[Object], home: str, other: Pod) -> bool:
    """Whether one of a rule's peers is the other pod; `home` is the policy's namespace."""
    labels = {
        thing["metadata"]["name"]: {
            "kubernetes.io/metadata.name": thing["metadata"]["name"],
            **thing["metadata"]["labels"],
        }
        for thing in of_kind(objects, "Namespace")
    }
    return any(
        (
            selects(peer["namespaceSelector"], labels[other.namespace])
            if "namespaceSelector" in peer
            else other.namespace == home
        )
        and selects(peer.get("podSelector", {}), other.labels)
        for peer in peers
        if "ipBlock" not in peer
    )


def allowed(objects: Sequence[Object], way: str, pod: Pod, other: Pod, port: int) -> bool:
    """Whether the policies that select `pod` let it talk to `other` that way."""
    selecting = [
        policy
        for policy in of_kind(objects, "NetworkPolicy")
        if policy["metadata"]["namespace"] == pod.namespace
        and selects(policy["spec"]["podSelector"], pod.labels)
        and way in policy["spec"]["policyTypes"]
    ]
    key = {"Ingress": "from", "Egress": "to"}[way]
    return not selecting or any(
        admits(rule[key], objects, pod.namespace, other)
        and port in [given["port"] for given in rule.get("ports", [{"port": port}])]
        for policy in selecting
        for rule in policy["spec"].get(way.lower(), [])
    )


def reaches(objects: Sequence[Object], one: Pod, other: Pod, port: int) -> bool:
    ways = (("Egress", one, other), ("Ingress", other, one))
    return all(allowed(objects, way, pod, peer, port) for way, pod, peer in ways)


def test_who_reaches_whom() -> None:
    objects = pods.overlay("tenants")
    found = {pod.where: pod for pod in pods.pods_of(objects)}
    graph = next(p for p in pods.graph_pods() if p.where == "posttraining on Argo: rl")
    named = {
        "graph": graph,
        "kfp": next(p for p in pods.graph_pods() if p.maker == "kfp"),
        "tenant": graph._replace(namespace="team-blue"),
        "machine": found["TrainingRuntime posttrain-torch: node"]._replace(
            namespace="posttrain", labels={pods.JOBSET: "one", "posttrain/stage": "rl"}
        ),
        "mlflow": found["Deployment mlflow"],
        "postgres": found["StatefulSet mlflow-postgres"],
        "backup": found["CronJob mlflow-backup"],
        "vllm": found["Deployment vllm"],
        "sandbox": found["Deployment sandbox"],
        "stranger": Pod("stranger", "manifest", "posttrain", {"app": "stranger"}, {}),
    }
    ports = {"mlflow": 5000, "postgres": 5432, "vllm": 8000, "sandbox": 8080, "machine": 29400}
    seen = {
        (one, other)
        for one in named
        for other, port in ports.items()
        if one != other and reaches(objects, named[one], named[other], port)
    }
    graphs = {(one, other) for one in ("graph", "kfp", "machine") for other in ("mlflow", "vllm")}
    graphs |= {(one, "sandbox") for one in ("graph", "kfp", "machine")}
    tenants = {("tenant", "mlflow"), ("tenant", "sandbox")}
    assert seen == graphs | tenants | {("mlflow", "postgres"), ("backup", "postgres")}
    machine = named["machine"]
    assert reaches(objects, machine, machine._replace(labels={pods.JOBSET: "one"}), 45678)
    assert not reaches(objects, machine, machine._replace(namespace="team-blue"), 45678)


def test_the_store_of_trials_hears_argo_alone() -> None:
    objects = pods.overlay("cpu")
    store = next(p for p in pods.pods_of(objects) if p.where == "StatefulSet objectstore")
    graph = next(p for p in pods.graph_pods() if p.maker == "argo")
    assert reaches(objects, graph, store, 8333)
    others = [p for p in pods.pods_of(objects) if p.where != store.where]
    assert not any(reaches(objects, pod, store, 8333) for pod in others)


def test_the_sandbox_has_no_way_out() -> None:
    for overlay in pods.OVERLAYS:
        for policy in of_kind(pods.overlay(overlay), "NetworkPolicy"):
            if policy["metadata"]["namespace"] == "posttrain-sandbox":
                assert not policy["spec"].get("egress")
