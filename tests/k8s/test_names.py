"""What graphs, pods and the client name is there, and says what they expect."""

import shutil
from typing import Any

import pytest
from mlflow.server.security_utils import is_allowed_host_header
from tests.k8s import pods, schemas
from tests.k8s.set_policy import selects

from pipelines import argo, argo_containers, steps

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on this machine")
Objects = dict[tuple[str, str, str], Any]


def named(overlay: str) -> Objects:
    """(kind, namespace, name) -> object."""
    return {
        (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]): thing
        for thing in pods.overlay(overlay)
    }


@pytest.fixture(scope="module", params=pods.OVERLAYS)
def objects(request: pytest.FixtureRequest) -> Objects:
    return named(request.param)


@pytest.fixture(scope="module")
def spaces(objects: Objects) -> list[str]:
    """The namespaces in which graphs run: the shared one and those of tenants."""
    tenants = [
        name
        for (kind, _, name), thing in objects.items()
        if kind == "Namespace" and "posttrain/tenant" in thing["metadata"]["labels"]
    ]
    return [argo.NAMESPACE, *tenants]


def test_graphs_find_what_they_name(objects: Objects, spaces: list[str]) -> None:
    for space in spaces:
        assert set(objects["ConfigMap", space, steps.CONFIG]["data"]) == set(steps.CONFIG_KEYS)
        assert ("PersistentVolumeClaim", space, steps.STORE_CLAIM) in objects
        assert ("ServiceAccount", space, argo.SERVICE_ACCOUNT) in objects
        token = objects["Secret", space, f"{argo.SERVICE_ACCOUNT}.service-account-token"]
        annotations = token["metadata"]["annotations"]
        assert annotations["kubernetes.io/service-account.name"] == argo.SERVICE_ACCOUNT
        memo = objects["ConfigMap", space, argo_containers.CACHE]["metadata"]["labels"]
        assert memo["workflows.argoproj.io/configmap-type"] == "Cache"
        assert ("ConfigMap", space, "artifact-repositories") in objects


def test_the_shared_store_is_shared_where_there_are_many_nodes() -> None:
    for overlay in pods.OVERLAYS:
        claim = named(overlay)["PersistentVolumeClaim", argo.NAMESPACE, steps.STORE_CLAIM]
        wanted = "ReadWriteOnce" if overlay == "cpu" else "ReadWriteMany"
        assert claim["spec"]["accessModes"] == [wanted]


def test_trials_ask_for_no_kinds_but_those_of_kubernetes() -> None:
    groups = {thing["apiVersion"].partition("/")[0] for thing in pods.overlay("cpu")}
    assert not [group for group in groups if group in ("argoproj.io", *schemas.CUSTOM)]


def test_addresses_in_the_environment_lead_to_services(objects: Objects) -> None:
    data = objects["ConfigMap", argo.NAMESPACE, steps.CONFIG]["data"]
    for key in ("MLFLOW_TRACKING_URI", "POSTTRAIN_SANDBOX"):
        scheme, host = data[key].split("://")
        name, space, _ = host.split(".")
        service = objects["Service", space, name]
        (port,) = service["spec"]["ports"]
        assert host == f"{name}.{space}.svc:{port['port']}"
        assert scheme == ("https" if port["name"] == "https" else "http")
        pod = next(
            p
            for p in pods.pods_of([*objects.values()])
            if p.namespace == space
            and selects({"matchLabels": service["spec"]["selector"]}, p.labels)
        )
        ports = [p for c in pod.spec["containers"] for p in c.get("ports", [])]
        assert port["targetPort"] in [p["name"] for p in ports] + [
            p["containerPort"] for p in ports
        ]
    assert data["POSTTRAIN_STORE"].startswith(f"{steps.STORE_PATH}/")
    assert data["MLFLOW_TRACKING_SERVER_CERT_PATH"].startswith(f"{steps.CA_PATH}/")


def test_what_a_pod_refers_to_is_there(objects: Objects) -> None:
    for pod in pods.pods_of([*objects.values()]):
        for volume in pod.spec.get("volumes", []):
            if name := volume.get("persistentVolumeClaim", {}).get("claimName"):
                assert ("PersistentVolumeClaim", pod.namespace, name) in objects
            given = volume.get("configMap", {})
            if given and not given.get("optional"):
                assert ("ConfigMap", pod.namespace, given["name"]) in objects
        if account := pod.spec.get("serviceAccountName"):
            assert ("ServiceAccount", pod.namespace, account) in objects
        if priority := pod.spec.get("priorityClassName"):
            assert ("PriorityClass", "", priority) in objects


def test_the_queue_and_the_priorities_of_graphs_are_there() -> None:
    for overlay in ("gpu", "spot", "tenants"):
        objects = named(overlay)
        queues = [key for key in objects if key[0] == "LocalQueue"]
        assert ("LocalQueue", argo.NAMESPACE, steps.QUEUE) in queues
        for key in queues:
            cluster = objects["ClusterQueue", "", objects[key]["spec"]["clusterQueue"]]
            for group in cluster["spec"]["resourceGroups"]:
                for flavor in group["flavors"]:
                    assert ("ResourceFlavor", "", flavor["name"]) in objects
                    asked = [resource["name"] for resource in flavor["resources"]]
                    assert asked == group["coveredResources"]
        for name in (steps.RESEARCH, steps.NIGHTLY):
            assert ("WorkloadPriorityClass", "", name) in objects


def test_spot_is_tried_before_on_demand_and_needs_no_toleration_of_the_graph() -> None:
    objects = named("spot")
    (group,) = objects["ClusterQueue", "", "posttrain"]["spec"]["resourceGroups"]
    assert [f["name"] for f in group["flavors"]] == ["cpu", "gpu-spot", "gpu-on-demand"]
    spot = objects["ResourceFlavor", "", "gpu-spot"]["spec"]
    taints = {taint["key"] for taint in spot["nodeTaints"]}
    assert taints - {t["key"] for t in spot["tolerations"]} == {"nvidia.com/gpu"}


def test_tenants_share_a_cohort_and_nothing_else() -> None:
    objects = named("tenants")
    for team in ("team-blue", "team-green"):
        queue = objects["ClusterQueue", "", team]["spec"]
        assert queue["cohortName"] == objects["Cohort", "", "posttrain"]["metadata"]["name"]
        labels = objects["Namespace", "", team]["metadata"]["labels"]
        assert selects(queue["namespaceSelector"], labels)
        (subject,) = objects["RoleBinding", team, "posttrain-submitter"]["subjects"]
        assert (subject["kind"], subject["name"]) == ("Group", team)


def test_the_graphs_pods_may_follow_a_trainjob() -> None:
    role = named("gpu")["Role", argo.NAMESPACE, argo.SERVICE_ACCOUNT]
    may = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    verbs = ("create", "get", "list", "watch", "delete")
    assert {("trainjobs", verb) for verb in verbs} <= may
    assert {("pods", "get"), ("pods", "list"), ("pods/log", "get")} <= may


def test_mlflow_accepts_its_own_name(objects: Objects) -> None:
    (container,) = objects["Deployment", argo.NAMESPACE, "mlflow"]["spec"]["template"]["spec"][
        "containers"
    ]
    env = {e["name"]: e.get("value") for e in container["env"]}
    hosts = env["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert is_allowed_host_header(hosts, f"mlflow.{argo.NAMESPACE}.svc:5000")
    assert not is_allowed_host_header(hosts, "evil.example.com:5000")
