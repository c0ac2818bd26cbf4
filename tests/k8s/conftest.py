"""A Postgres that asks for a password, as the one of the manifests does."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgres() -> Iterator[dict[str, str]]:
    """A Postgres of its own; gives the environment that reaches it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no Postgres server on this machine")
    binaries = found[-1].parent
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    password = folder / "password"
    password.write_text("a password of a test", encoding="utf-8")
    if user:
        for path in (folder, password):
            shutil.chown(path, user)
    port = str(free_port())
    data, log = str(folder / "data"), str(folder / "log")

    def run(*words: str) -> None:
        subprocess.run([str(binaries / words[0]), *words[1:]], check=True, user=user, cwd=folder)

    try:
        run("initdb", "-D", data, "-U", "mlflow", "-A", "scram-sha-256", f"--pwfile={password}")
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-l", log, "-w", "-o", settings, "start")
        try:
            yield {
                "PATH": f"{binaries}:{os.environ['PATH']}",
                "PGHOST": "127.0.0.1",
                "PGPORT": port,
                "PGUSER": "mlflow",
                "PGDATABASE": "mlflow",
                "PGPASSWORD": password.read_text(encoding="utf-8"),
            }
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
