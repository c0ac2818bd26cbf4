"""The Kubernetes base: complete, restricted, closed, and named as the graphs name things."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines import argo, steps

ROOT = Path(__file__).parents[1]
BASE = ROOT / "k8s/base"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    """(kind, name) -> object, of the files that the kustomization lists."""
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    found = [
        thing
        for name in listed
        for thing in yaml.safe_load_all((BASE / name).read_text(encoding="utf-8"))
    ]
    assert {path.name for path in BASE.glob("*.yaml")} == {*listed, "kustomization.yaml"}
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in found}


def test_the_namespace_is_restricted(objects: dict[tuple[str, str], Any]) -> None:
    labels = objects["Namespace", argo.NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_graphs_find_what_they_name(objects: dict[tuple[str, str], Any]) -> None:
    assert set(objects["ConfigMap", steps.CONFIG]["data"]) == set(steps.CONFIG_KEYS)
    claim = objects["PersistentVolumeClaim", steps.STORE_CLAIM]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert objects["ConfigMap", steps.CONFIG]["data"]["POSTTRAIN_STORE"].startswith(
        f"{steps.STORE_PATH}/"
    )
    assert ("ServiceAccount", argo.SERVICE_ACCOUNT) in objects
    uri = objects["ConfigMap", steps.CONFIG]["data"]["MLFLOW_TRACKING_URI"]
    assert uri == f"http://mlflow.{argo.NAMESPACE}.svc:5000"
    assert objects["Service", "mlflow"]["spec"]["ports"][0]["port"] == 5000


def test_mlflow_runs_restricted_and_accepts_its_own_name(
    objects: dict[tuple[str, str], Any],
) -> None:
    pod = objects["Deployment", "mlflow"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    hosts = {e["name"]: e["value"] for e in container["env"]}["MLFLOW_SERVER_ALLOWED_HOSTS"]
    from mlflow.server.security_utils import is_allowed_host_header

    assert is_allowed_host_header(hosts.split(","), f"mlflow.{argo.NAMESPACE}.svc:5000")
    assert not is_allowed_host_header(hosts.split(","), "evil.example.com:5000")


def test_roles_are_narrow(objects: dict[tuple[str, str], Any]) -> None:
    for (kind, _), thing in objects.items():
        assert kind not in ("ClusterRole", "ClusterRoleBinding", "Secret")
        for rule in thing.get("rules", []):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_network_is_closed_by_default(objects: dict[tuple[str, str], Any]) -> None:
    policy = objects["NetworkPolicy", "default-deny"]["spec"]
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_kustomize_renders_everything(objects: dict[tuple[str, str], Any]) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl on this machine")
    done = subprocess.run(
        ["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, check=True
    )
    rendered = {
        (thing["kind"], thing["metadata"]["name"]): thing
        for thing in yaml.safe_load_all(done.stdout)
    }
    assert rendered.keys() == objects.keys()
    spaces = {
        t["metadata"].get("namespace") for (kind, _), t in rendered.items() if kind != "Namespace"
    }
    assert spaces == {argo.NAMESPACE}
    container = rendered["Deployment", "mlflow"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "localhost/posttrain-mlflow:dev"


def test_the_compose_file_is_as_strict() -> None:
    compose = yaml.safe_load((ROOT / "mlflow/compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["mlflow"]
    assert service["ports"] == ["127.0.0.1:5000:5000"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
