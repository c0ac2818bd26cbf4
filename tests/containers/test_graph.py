"""The whole graph in containers of a Docker engine: the artifacts of the bare machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.check import GRAPHS
from posttrain.containers import LABEL
from posttrain.gate.stage import VERDICT_FILE
from posttrain.provenance import commit

pytestmark = [pytest.mark.container, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def command(out: Path, *more: str) -> list[str]:
    run = ["run", "--recipe", "smoke", "--out", str(out), "--store", str(out / "store")]
    return [sys.executable, "-m", "posttrain.cli", *run, *more]


def environment(out: Path) -> dict[str, str]:
    """Of a run whose metrics and champion go to a database beside its folder."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MLFLOW_TRACKING_URI": f"sqlite:///{out.parent}/registry/mlflow.db",
    }


def digests(out: Path) -> dict[str, str]:
    """Task.port -> digest, of every artifact of a run."""
    records = [json.loads(path.read_text()) for path in (out / "stages").glob("*.json")]
    return {
        f"{record['task']}.{port}": output["digest"]
        for record in records
        for port, output in record["outputs"].items()
    }


def ran(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(out, *more),
        cwd=ROOT,
        env=environment(out),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_graph_gives_the_digests_of_the_bare_machine(
    docker_engine: Any, image: str, tmp_path: Path
) -> None:
    labels = docker_engine.images.get(image).labels
    # The page of the report names the commit.
    assert labels["org.opencontainers.image.revision"] == commit(), "make images: it is another's"
    bare, contained = tmp_path / "bare", tmp_path / "contained"
    for out, more in ((bare, ()), (contained, ("--image", image))):
        done = ran(out, *more)
        assert done.returncode == 0, done.stderr[-2000:]
        # What a gate says depends on the registry's past, of which neither run shall have any.
        (tmp_path / "registry").rename(tmp_path / f"registry-of-{out.name}")
    found = digests(contained)
    assert {name.partition(".")[0] for name in found} == set(GRAPHS["posttraining"])
    assert found == digests(bare)
    (verdict,) = (contained / "store").rglob(VERDICT_FILE)
    assert json.loads(verdict.read_text())["registry"] == "reached"
    assert all(path.stat().st_uid == os.getuid() for path in tmp_path.rglob("*"))


def test_a_failure_is_told_as_that_of_a_process(image: str, tmp_path: Path) -> None:
    other = json.dumps({"raw": {"revision": "0" * 8}})
    done = ran(tmp_path / "run", "--overrides", other, "--image", image)
    assert done.returncode == 3, done.stderr
    assert "data of another revision" in done.stderr
    assert "raw failed with exit code 3" in done.stderr


def test_no_engine_and_no_image_are_configuration(image: str, tmp_path: Path) -> None:
    done = ran(tmp_path / "run", "--image", "localhost/posttrain:absent")
    assert done.returncode == 2
    assert "no image `localhost/posttrain:absent`" in done.stderr


def test_a_stopped_launcher_leaves_no_container(
    docker_engine: Any, image: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    label = {"label": f"{LABEL}={out}"}
    launcher = subprocess.Popen(
        command(out, "--image", image),
        cwd=ROOT,
        env=environment(out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not docker_engine.containers.list(filters=label) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert docker_engine.containers.list(filters=label)
    launcher.terminate()
    assert launcher.wait(timeout=60) == 75
    assert not docker_engine.containers.list(filters=label)
