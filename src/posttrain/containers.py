"""Tasks of a local run in containers of an image, shut in as in a cluster.

A container sees the working folder and the public data read-only, the run folder, the store and
the folder of the registry's file at their own paths, and nothing else of this machine. It has no
network, no capability and a read-only root, and its user is the caller, so that files are theirs.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.check import GRAPHS
from posttrain.cli import DEFAULT_DATA, layers_of
from posttrain.config import resolve
from posttrain.errors import ConfigError, Fault
from posttrain.mlflow_client import sqlite_file
from posttrain.stages import TASKS, load_stage

LABEL = "posttrain.run"
HANDED_ON = ("OMP_", "GOMP_", "POSTTRAIN_", "MLFLOW_TRACKING_URI")
"""Beginnings of the names of variables that tasks get from here."""
MEMORY_SHARE = 0.9
"""Of the machine's, for a task: one that wants more is killed alone, not what runs beside it."""


@contextlib.contextmanager
def shut_in(
    image: str, run_folder: Path, shared: Sequence[Path], settings: Mapping[str, str]
) -> Iterator[Any]:
    """KFP's runner of tasks in `image`; whatever of them is still at work is ended at the end.

    They write `run_folder` and the folders that runs have in common.
    Containers that a killed launcher of the same run left are ended first: two must not write one
    run. Raises `ConfigError` when no engine answers or it does not have the image.
    """
    from kfp import local

    client = engine(image)
    try:
        end_all(client, run_folder)
        try:
            memory = int(client.info()["MemTotal"] * MEMORY_SHARE)
            yield local.DockerRunner(
                **arguments(run_folder, shared, settings), mem_limit=memory, memswap_limit=memory
            )
        finally:
            end_all(client, run_folder)
    finally:
        client.close()


def engine(image: str) -> Any:
    """A client of the Docker engine that `DOCKER_HOST` names, if it has the image."""
    import docker

    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        mend = "start it, or set DOCKER_HOST (scripts/engines.sh starts one of its own)"
        raise ConfigError(Fault("no Docker engine", "--image", str(error), mend)) from None
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound as error:
        client.close()
        mend = "make images, or docker pull"
        raise ConfigError(Fault(f"no image `{image}`", "--image", str(error), mend)) from None
    return client


def registry_folders(recipe: str, overrides: str, graph: str) -> list[Path]:
    """Where the SQLite files of the registries lie that a graph's tasks look into."""
    layers = layers_of(recipe, overrides)
    found = set()
    for task in GRAPHS[graph]:
        stage = load_stage(TASKS[task])
        config = resolve(stage.config, stage.name, task, layers, {})
        if database := sqlite_file(getattr(config, "registry_uri", "")):
            found.add(absolute(database.parent))
    return sorted(found)


def absolute(path: str | Path) -> Path:
    """The absolute path without `..`, as the engine wants it; links stay, as tasks name them."""
    return Path(os.path.abspath(path))


def arguments(
    run_folder: Path, shared: Sequence[Path], settings: Mapping[str, str]
) -> dict[str, Any]:
    """What `docker run` is given for every task."""
    from docker.types import Mount

    written = dict.fromkeys(map(absolute, (run_folder, *shared)))
    for folder in written:
        folder.mkdir(parents=True, exist_ok=True)
    data = absolute(os.environ.get("POSTTRAIN_DATA", DEFAULT_DATA))
    read = {path for path in (Path.cwd(), data) if path.is_dir()} - written.keys()
    handed = {name: value for name, value in os.environ.items() if name.startswith(HANDED_ON)}
    return {
        # KFP gives a shell's command line, which must not become options of `posttrain`.
        "entrypoint": [""],
        "user": f"{os.getuid()}:{os.getgid()}",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "none",
        "tmpfs": {"/tmp": "rw,nosuid,nodev"},
        "mounts": [
            *(Mount(str(path), str(path), type="bind", read_only=True) for path in sorted(read)),
            *(Mount(str(path), str(path), type="bind") for path in written),
        ],
        # Relative paths, of the registry too, mean here what they mean to a process.
        "working_dir": str(Path.cwd()),
        "environment": {**handed, **settings},
        "labels": {LABEL: str(run_folder)},
    }


def end_all(client: Any, run_folder: Path) -> None:
    """End every container of a run; what they had finished is in the store."""
    import docker

    for container in client.containers.list(filters={"label": f"{LABEL}={run_folder}"}):
        with contextlib.suppress(docker.errors.APIError):
            container.stop(timeout=15)
