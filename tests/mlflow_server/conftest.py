"""Real servers: Postgres by Debian's binaries, MLflow by the script that the image starts."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from posttrain.mlflow_client import prepare

ROOT = Path(__file__).parents[2]
PASSWORD = "p%ssw:rd@9-and-more"
STARTS_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Mlflow:
    """A tracking server with users; `kill` ends it as a lost node would, `start` is a restart."""

    def __init__(self, folder: Path, database: str, extra: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        tls = "MLFLOW_TLS_CERT" in extra
        self.uri = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MLFLOW_BACKEND_STORE_URI": database,
            "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"),
            "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "only for this test",
            "MLFLOW_HOST": "127.0.0.1",
            "MLFLOW_PORT": str(self.port),
            "MLFLOW_WORKERS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **extra,
        }
        self.start()

    def start(self) -> None:
        with (self.folder / "log.txt").open("a") as log:
            self.process = subprocess.Popen(
                ["sh", str(ROOT / "mlflow/serve.sh")],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + STARTS_SECONDS
        while not self.healthy():
            log_text = (self.folder / "log.txt").read_text()
            assert self.process.poll() is None, log_text
            assert time.monotonic() < until, log_text
            time.sleep(0.2)

    def healthy(self) -> bool:
        asked = ["sh", str(ROOT / "mlflow/serve.sh"), "health"]
        done = subprocess.run(asked, env=self.environment, capture_output=True, check=False)
        return done.returncode == 0

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Postgres:
    """A database server; called with a name, it makes an empty database and gives its URI."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self.folder, self.port = binaries, folder, free_port()
        # It refuses to run as root, and its own user may not enter pytest's folders.
        self.user = "postgres" if os.getuid() == 0 else None
        if self.user:
            shutil.chown(folder, self.user)
        data = ("-D", str(folder / "data"))
        self.run("initdb", *data, "-U", "posttrain", "-A", "trust", "--no-sync")
        options = f"-p {self.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", *data, "-o", options, "-l", str(folder / "log"), "-w", "start")

    def run(self, *command: str) -> None:
        subprocess.run(
            [str(self.binaries / command[0]), *command[1:]],
            user=self.user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "LC_ALL": "C.UTF-8",
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.port),
                "PGUSER": "posttrain",
            },
        )

    def __call__(self, name: str) -> str:
        self.run("createdb", name)
        return f"postgresql+psycopg://posttrain@127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no Postgres here (Debian: postgresql)")
    with tempfile.TemporaryDirectory(prefix="posttrain-postgres-") as name:
        server = Postgres(found[-1].parent, Path(name))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with MLflow's empty tables, which take seconds to make."""
    file = tmp_path_factory.mktemp("tables") / "mlflow.db"
    prepare(file)
    return file


@pytest.fixture(scope="module")
def mlflow(
    tmp_path_factory: pytest.TempPathFactory, tables: Path
) -> Iterator[Callable[..., Mlflow]]:
    """Start a server over a database, by default a SQLite file of its own."""
    pytest.importorskip("flask_wtf", reason="the extra `auth` of mlflow is not installed")
    started: list[Mlflow] = []

    def start(database: str = "", **extra: str) -> Mlflow:
        folder = tmp_path_factory.mktemp("mlflow")
        shutil.copy(tables, folder)
        started.append(Mlflow(folder, database or f"sqlite:///{folder}/mlflow.db", extra))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and password of the administrator, as a user's environment has them."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
