"""A cluster with this process as its pod, and a small task of `rl` in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.trainjob.cluster import Cluster, serving

from posttrain.artifacts import write_rows
from posttrain.config import resolve
from posttrain.execution import Request
from posttrain.records import Prompt
from posttrain.stages import load_stage

OPTIONS = {"steps": 2, "prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6}
LEARNING = {"entropy_bonus": 0.01, "kl_coefficient": 0.1, "learning_rate": 1e-3}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """What the kubeconfig of the environment leads to; its shared volume is the test's folder."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("POSTTRAIN_IMAGE", raising=False)
    with serving(tmp_path, tmp_path / "kubeconfig") as found:
        yield found


@pytest.fixture
def request_(tiny_policy: Path, tmp_path: Path, seal: Callable[[Path, str], object]) -> Request:
    """Two steps of `rl` on three prompts."""
    prompts = [
        Prompt(id=f"{i}", text=f"{i + 2} + {i} = ?", answer="1", task="arithmetic", source="test")
        for i in range(3)
    ]
    write_rows(tmp_path / "prompts", prompts)
    seal(tmp_path / "prompts", "Prompt")
    stage = load_stage("rl")
    return Request(
        stage=stage,
        task="rl",
        config=resolve(stage.config, "rl", "rl", [], OPTIONS | LEARNING),
        inputs={"policy": tiny_policy, "prompts": tmp_path / "prompts"},
        outputs={"trained": tmp_path / "pod/trained"},
        store=tmp_path / "store",
        run_folder=tmp_path / "runs/one",
    )


def command_line(request: Request) -> list[str]:
    """The same task as a person types it."""
    options = [f"--{k.replace('_', '-')}={v}" for k, v in (OPTIONS | LEARNING).items()]
    ports = {**request.inputs, **request.outputs}
    paths = [f"--{port}={path}" for port, path in ports.items()]
    place = [f"--store={request.store}", f"--run-folder={request.run_folder}", "--tracking=off"]
    return ["rl", *options, *paths, *place]
