"""Fixtures shared by tests: a tiny real policy, a journal, sealed folders, and an image of ours."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
from hypothesis import settings

from posttrain.artifacts import Manifest, content_files, digest_of, write_json, write_manifest
from posttrain.disk import locked
from posttrain.journal import Journal

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

ROOT = Path(__file__).parents[1]
EMBEDDED = ROOT / "src/posttrain/base/tiny"
IMAGES = "localhost/posttrain-tests"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal whose curves and scratch lie in the test's folder."""
    return Journal(tmp_path / "journal")


@pytest.fixture(scope="session")
def seal() -> Callable[[Path, str], Manifest]:
    """Write the manifest of a folder, as the executor does after a stage."""

    def write(folder: Path, record: str, *, task: str = "test", **about: object) -> Manifest:
        files = content_files(folder)
        fields: dict[str, object] = {
            "stage": task,
            "port": "out",
            "key": "0" * 32,
            "config": {},
            "seed": 0,
            "inputs": {},
            "git": "unknown",
            "started": 0.0,
            "seconds": 0.0,
            "report": {},
        }
        manifest = Manifest.model_validate(
            fields
            | about
            | {"record": record, "task": task, "files": files, "digest": digest_of(files)}
            | {
                "rows": sum(1 for _ in (folder / "rows.jsonl").open())
                if (folder / "rows.jsonl").is_file()
                else None
            }
        )
        write_manifest(folder, manifest)
        return manifest

    return write


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory, seal: Callable[..., Manifest]) -> Path:
    """A random Qwen3 policy of about 50k parameters with the embedded tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config).float()
    folder = tmp_path_factory.mktemp("tiny") / "policy"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    seal(folder, "policy", task="base")
    return folder


@pytest.fixture(scope="module")
def judge(
    tiny_policy: Path, seal: Callable[..., Manifest], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A random judge with the policy's body, and a panel that lets it."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from posttrain.reward_model.panel import (
        PANEL,
        Invariance,
        ScoredPair,
        Thresholds,
        judge_the_judge,
    )

    folder = tmp_path_factory.mktemp("judge") / "judge"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pair = ScoredPair(source="test", chosen=2.0, rejected=1.0, chosen_length=9, rejected_length=9)
    steady = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    panel = judge_the_judge([pair], steady, Thresholds(max_ece=1))
    write_json(folder / PANEL, panel.model_dump(mode="json"))
    seal(folder, "judge")
    return folder


@pytest.fixture(scope="session")
def docker_engine() -> Any:
    """A client of the Docker engine that `DOCKER_HOST` names; its command is here too."""
    docker = pytest.importorskip("docker")
    if not shutil.which("docker"):
        pytest.skip("no docker command")
    try:
        return docker.from_env()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker engine: {error}; scripts/engines.sh start FOLDER")


@pytest.fixture(scope="session")
def image(docker_engine: Any, tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> str:
    """The image for training: POSTTRAIN_TEST_IMAGE, or built from the checkout, once for all."""
    if named := os.environ.get("POSTTRAIN_TEST_IMAGE"):
        docker_engine.images.get(named)
        return named
    built = tmp_path_factory.getbasetemp().parent / f"image-{testrun_uid}"
    with locked(built.with_name("image.lock")):
        if not built.exists():
            build_image()
            built.touch()
    return f"{IMAGES}:train"


def build_image() -> None:
    """Build the image for training; skip where there is nothing to build it with."""
    base = os.environ.get("BASE_IMAGE", "localhost/python:3.11-slim")
    known = ["buildah", "inspect", "--type", "image", base]
    if not shutil.which("buildah") or subprocess.run(known, capture_output=True).returncode:
        pytest.skip(f"no buildah, or no base image {base} in it: scripts/engines.sh base")
    given = {"BASE_IMAGE": base, "IMAGE_TARGETS": "train", "IMAGE_PREFIX": IMAGES}
    command = ["sh", "scripts/images.sh"]
    environment = {**os.environ, **given}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sha256:" in done.stdout
