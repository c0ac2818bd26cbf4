"""The image of the tracking server, as a restricted container over a real Postgres."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from posttrain.journal import Journal
from posttrain.mlflow_client import connect
from posttrain.tracking import ship

pytestmark = [pytest.mark.slow, pytest.mark.container]

IMAGE = "localhost/posttrain-mlflow:dev"
PASSWORD = "p%ssw:rd@9-and-more"
STARTS_SECONDS = 120.0


def engine() -> list[str]:
    """The command of Docker where DOCKER_HOST names one, else of podman."""
    if "DOCKER_HOST" in os.environ and shutil.which("docker"):
        return ["docker"]
    if shutil.which("podman"):
        return ["podman", *(("--runtime", "runc") if shutil.which("runc") else ())]
    pytest.skip("neither Docker nor podman is here")


@pytest.fixture(scope="module")
def address(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a server in a container, and of its database."""
    command = engine()
    if subprocess.run([*command, "image", "inspect", IMAGE], capture_output=True).returncode:
        pytest.skip(f"no image {IMAGE}: make images IMAGE_TARGETS=mlflow")
    database = postgres("contained")
    files = tmp_path_factory.mktemp("files")
    files.chmod(0o777)  # the container's user is another one
    port = sa.make_url(database).port
    ours = str(port + 1)
    given = {
        "MLFLOW_BACKEND_STORE_URI": "postgresql+psycopg://",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGUSER": "posttrain",
        "PGDATABASE": "contained",
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "only for this test",
        "MLFLOW_HOST": "127.0.0.1",
        "MLFLOW_PORT": ours,
        "MLFLOW_WORKERS": "1",
    }
    name = f"posttrain-mlflow-{ours}"
    subprocess.run(
        [
            *(*command, "run", "--detach", "--rm", "--name", name, "--network", "host"),
            *("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
            *("--memory", "2g", "--tmpfs", "/tmp", "--volume", f"{files}:/mlflow"),
            *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"),
            *(part for each in given.items() for part in ("--env", "=".join(each))),
            IMAGE,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    asked = [*command, "exec", name, "sh", "/opt/mlflow/bin/serve.sh", "health"]
    try:
        until = time.monotonic() + STARTS_SECONDS
        while subprocess.run(asked, capture_output=True).returncode:
            if time.monotonic() > until:
                done = subprocess.run([*command, "logs", name], capture_output=True, text=True)
                pytest.fail(done.stdout + done.stderr)
            time.sleep(1)
        yield f"http://127.0.0.1:{ours}", database
    finally:
        subprocess.run([*command, "kill", name], capture_output=True)


def test_a_restricted_container_takes_a_run(
    address: tuple[str, str], user: None, tmp_path: Path
) -> None:
    uri, database = address
    client = connect(uri)
    run = tmp_path / "run"
    journal = Journal(run / "stages" / "rl", scratch=run / "scratch")
    for step in range(50):
        journal.log(step, reward=step)
    (run / "summary.json").write_text("{}")
    assert ship(run, uri) == f"tracking: 0 tasks in {uri}"
    (parent,) = client.search_runs(["1"], "attributes.run_name = 'run'")
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["summary.json"]
    with sa.create_engine(database).connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM metrics")) == 50
        assert connection.scalar(sa.text("SELECT count(*) FROM users")) == 1
