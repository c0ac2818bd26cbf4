"""The tracking server with the environment of its manifest and the secrets of `secrets.sh`."""

import base64
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from tests.k8s import pods
from tests.k8s.test_secrets import secrets
from tests.mlflow_server.conftest import Mlflow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("kubectl") and shutil.which("openssl")), reason="no kubectl or no openssl"
    ),
]


def value(made: dict[str, Any], name: str, key: str) -> str:
    return base64.b64decode(made[name]["data"][key]).decode()


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return secrets()


@pytest.fixture(scope="module")
def server(
    made: dict[str, Any], postgres: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mlflow]:
    pytest.importorskip("flask_wtf", reason="the extra `auth` of mlflow is not installed")
    folder = tmp_path_factory.mktemp("deployed")
    for key in ("tls.crt", "tls.key", "ca.crt"):
        (folder / key).write_text(value(made, "mlflow-tls", key), encoding="utf-8")
    pod = next(p for p in pods.pods_of(pods.overlay("cpu")) if p.where == "Deployment mlflow")
    env = {}
    for given in pod.spec["containers"][0]["env"]:
        from_ = given.get("valueFrom", {}).get("secretKeyRef")
        env[given["name"]] = value(made, from_["name"], from_["key"]) if from_ else given["value"]
    env |= {"MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"), **postgres}
    env |= {"MLFLOW_TLS_CERT": str(folder / "tls.crt"), "MLFLOW_TLS_KEY": str(folder / "tls.key")}
    subprocess.run(["createdb", "mlflow"], env=postgres | {"PGDATABASE": "postgres"}, check=True)
    path = env.pop("PATH")
    env["PATH"] = f"{Path(shutil.which('python3') or '').parent}:{path}"
    running = Mlflow(folder, env["MLFLOW_BACKEND_STORE_URI"], env)
    yield running
    running.kill()


def test_it_speaks_tls_and_lets_in_whom_the_admin_has_made(
    server: Mlflow, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{server.uri}/health", timeout=10)
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(server.folder / "ca.crt"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    name, password = (value(made, "posttrain-mlflow", key) for key in ("username", "password"))
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    with pytest.raises(Exception, match="401"):
        MlflowClient(server.uri).create_experiment("before")
    done = subprocess.run(
        ["sh", str(pods.K8S / "base/mlflow/user.sh"), name],
        env=server.environment
        | {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(server.folder / "ca.crt")},
        input=password,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"made {name}\n", done.stderr
    made_id = MlflowClient(server.uri).create_experiment("after")
    assert MlflowClient(server.uri).get_experiment(made_id).name == "after"
