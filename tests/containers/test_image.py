"""A restricted container of a built image: what it is, what it may not do, what it computes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import read_manifest

pytestmark = [pytest.mark.container, pytest.mark.slow]

STAGES = (
    ("raw", "--rows", "{out}/rows"),
    ("curate", "--rows", "{out}/rows", "--prompts", "{out}/prompts", "--demonstrations",
     "{out}/demonstrations", "--preferences", "{out}/preferences", "--evaluation",
     "{out}/evaluation"),
    ("base", "--policy", "{out}/policy"),
    ("benchmark", "--task", "benchmark_base", "--policy", "{out}/policy", "--evaluation",
     "{out}/evaluation", "--scores", "{out}/scores"),
)  # fmt: skip
ARTIFACTS = ("rows", "prompts", "demonstrations", "preferences", "evaluation", "policy", "scores")
SETTINGS = {"OMP_NUM_THREADS": "1", "POSTTRAIN_TRACKING": "off"}


def restricted(docker_engine: Any, image: str, *command: str, **more: Any) -> str:
    """Run a command in a container as a cluster would; its output, or `ContainerError`."""
    output: bytes = docker_engine.containers.run(
        image,
        list(command),
        remove=True,
        stderr=True,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
        mem_limit="3g",
        tmpfs={"/tmp": "rw,nosuid,nodev"},
        **more,
    )
    return output.decode()


def test_an_image_says_what_it_is(docker_engine: Any, image: str) -> None:
    found = docker_engine.images.get(image)
    labels, config = found.labels, found.attrs["Config"]
    assert {"title", "version", "revision", "created"} <= {
        name.removeprefix("org.opencontainers.image.") for name in labels
    }
    assert labels["posttrain.lock"].startswith("sha256:")
    assert config["User"] == "1000:1000"
    assert config["Entrypoint"] == ["posttrain"]
    assert "HOME=/tmp" in config["Env"]
    assert f"POSTTRAIN_COMMIT={labels['org.opencontainers.image.revision']}" in config["Env"]


def test_an_image_lists_its_packages_and_holds_nothing_to_install_with(
    docker_engine: Any, image: str
) -> None:
    script = """
import importlib.metadata, importlib.util, json, shutil
bill = json.load(open("/usr/share/posttrain/sbom.json"))
print(json.dumps({
    "listed": {part["name"].lower(): part["version"] for part in bill["components"]},
    "torch": importlib.metadata.version("torch"),
    "tools": [name for name in ("pip", "gcc", "cc", "uv", "git", "curl") if shutil.which(name)],
    "modules": [n for n in ("pip", "pytest", "mypy", "ruff") if importlib.util.find_spec(n)],
}))"""
    found = json.loads(restricted(docker_engine, image, "-c", script, entrypoint=["python"]))
    assert found["listed"]["torch"] == found["torch"]
    assert len(found["listed"]) > 100
    assert found["tools"] == []
    assert found["modules"] == []


def test_an_image_keeps_no_place_of_its_build(docker_engine: Any, image: str) -> None:
    history = json.dumps(docker_engine.images.get(image).history())
    for place in (os.environ.get("PIP_INDEX_URL"), os.environ.get("PIP_FIND_LINKS")):
        assert not place or place not in history
    script = "find /run/secrets /etc/pip.conf /build -type f 2>/dev/null | wc -l"
    assert restricted(docker_engine, image, "-c", script, entrypoint=["sh"]).strip() == "0"


def test_a_restricted_container_has_no_power(docker_engine: Any, image: str) -> None:
    script = """
id -u
grep CapEff /proc/self/status | cut -f2
grep NoNewPrivs /proc/self/status | cut -f2
touch /opt/posttrain/x 2>&1 | grep -c Read-only
ls /sys/class/net"""
    told = restricted(docker_engine, image, "-c", script, entrypoint=["sh"]).split()
    assert told == ["1000", "0000000000000000", "1", "1", "lo"]


def test_stages_give_the_digests_of_the_bare_machine(
    docker_engine: Any, image: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        folder.chmod(0o777)
    for stage, *ports in STAGES:
        recipe = ("--recipe", "smoke")
        bare = [port.format(out=here) for port in ports]
        subprocess.run(
            [sys.executable, "-m", "posttrain.cli", stage, *recipe, *bare],
            cwd=here,
            env={**os.environ, **SETTINGS},
            check=True,
            capture_output=True,
        )
        restricted(
            docker_engine,
            image,
            stage,
            *recipe,
            *(port.format(out="/work") for port in ports),
            environment=SETTINGS,
            volumes={str(there): {"bind": "/work", "mode": "rw"}},
            working_dir="/work",
        )
    for name in ARTIFACTS:
        assert read_manifest(there / name).digest == read_manifest(here / name).digest, name
    revision = docker_engine.images.get(image).labels["org.opencontainers.image.revision"]
    assert read_manifest(there / "scores").git == revision


def test_exit_codes_come_through(docker_engine: Any, image: str) -> None:
    from docker.errors import ContainerError

    with pytest.raises(ContainerError) as caught:
        restricted(docker_engine, image, "raw", "--rows", "/tmp/rows", "--recipe", "absent")
    assert caught.value.exit_status == 2
    with pytest.raises(ContainerError) as caught:
        restricted(docker_engine, image, "raw", "--rows", "/opt/rows", "--recipe", "smoke")
    assert caught.value.exit_status == 2
