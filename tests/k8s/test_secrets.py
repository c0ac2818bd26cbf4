"""`k8s/secrets.sh` makes every secret that a pod needs, with the keys that it needs."""

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.k8s import pods, schemas
from tests.k8s.policy import Pod

pytestmark = pytest.mark.skipif(
    not (shutil.which("kubectl") and shutil.which("openssl")), reason="no kubectl or no openssl"
)
STORE = {
    "S3_ENDPOINT": "s3.example.com",
    "S3_BUCKET": "bucket",
    "S3_ACCESS_KEY": "an access key",
    "S3_SECRET_KEY": "a secret key",
}


def secrets(**env: str) -> dict[str, Any]:
    """What `k8s/secrets.sh` would make: name -> object."""
    done = subprocess.run(
        ["sh", str(pods.K8S / "secrets.sh"), "--dry-run=client", "-o", "yaml"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    made = [thing for thing in yaml.safe_load_all(done.stdout) if thing]
    assert [fault for thing in made for fault in schemas.faults(thing)] == []
    return {thing["metadata"]["name"]: thing for thing in made}


def wanted(pod: Pod) -> Iterator[tuple[str, str]]:
    """(secret, key) of each that the pod does not start without; an empty key means any."""
    for volume in pod.spec.get("volumes", []):
        if "secret" in volume and not volume["secret"].get("optional"):
            yield volume["secret"]["secretName"], ""
    for container in pod.spec["containers"]:
        for variable in container.get("env", []):
            given = variable.get("valueFrom", {}).get("secretKeyRef")
            if given and not given.get("optional"):
                yield given["name"], given["key"]
        for source in container.get("envFrom", []):
            if "secretRef" in source:
                yield source["secretRef"]["name"], ""


@pytest.mark.parametrize("overlay", pods.OVERLAYS)
def test_every_secret_of_an_overlay_is_made(overlay: str) -> None:
    made = secrets(**({} if overlay == "cpu" else STORE))
    asked = {each for pod in pods.pods_of(pods.overlay(overlay)) for each in wanted(pod)}
    repository = next(
        thing["data"]["posttrain"]
        for thing in pods.overlay(overlay)
        if thing["metadata"]["name"] == "artifact-repositories"
    )
    s3 = yaml.safe_load(repository)["s3"]
    asked |= {(s3[k]["name"], s3[k]["key"]) for k in ("accessKeySecret", "secretKeySecret")}
    assert asked
    for name, key in asked:
        assert name in made
        assert not key or key in made[name]["data"]


def test_a_tenants_namespace_gets_its_own() -> None:
    made = secrets(NAMESPACE="team-blue", **STORE)
    assert made.keys() == {"posttrain-artifacts", "posttrain-mlflow"}
    assert {thing["metadata"]["namespace"] for thing in made.values()} == {"team-blue"}


def test_the_certificate_is_mlflows_and_of_the_authority_that_pods_trust(tmp_path: Path) -> None:
    made = secrets(**STORE)
    (tmp_path / "ca.crt").write_text(made["posttrain-ca"]["data"]["ca.crt"], encoding="utf-8")
    certificate = base64.b64decode(made["mlflow-tls"]["data"]["tls.crt"])
    (tmp_path / "tls.crt").write_bytes(certificate)
    for host, code in (("mlflow.posttrain.svc", 0), ("evil.example.com", 2)):
        verify = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", host, "tls.crt"]
        done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr


def test_values_given_are_kept_and_others_are_by_chance() -> None:
    one, two = secrets(**STORE), secrets(**STORE)
    key = base64.b64decode(one["mlflow-artifacts"]["data"]["AWS_SECRET_ACCESS_KEY"]).decode()
    assert key == STORE["S3_SECRET_KEY"]
    for name in ("mlflow-postgres", "mlflow-admin", "posttrain-mlflow"):
        assert one[name]["data"]["password"] != two[name]["data"]["password"]
        assert len(base64.b64decode(one[name]["data"]["password"])) == 48
