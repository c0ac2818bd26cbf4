"""What a TrainJob is made of, and what is refused before any machine is asked for."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.k8s.schemas import faults
from tests.trainjob.cluster import Cluster, own_pod
from tests.trainjob.conftest import command_line

from posttrain.artifacts import read_manifest
from posttrain.cli import main
from posttrain.errors import ConfigError
from posttrain.execution import Request, verify_inputs
from posttrain.trainjob.job import RUNTIME, execute_on, staged, trainjob

RUNTIME_FILE = Path(__file__).parents[2] / "k8s/base/graphs/trainer.yaml"


def made(request: Request, machines: int = 2) -> dict[str, Any]:
    assert request.run_folder
    home = request.run_folder / "trainjob/rl"
    inputs = staged(request, verify_inputs(request), home)
    return trainjob(request, inputs, home, own_pod(home), machines)


def test_the_manifest_is_valid_and_like_the_pod(request_: Request) -> None:
    job = made(request_)
    assert faults(job) == []
    trainer = job["spec"]["trainer"]
    assert trainer["image"] == "localhost/posttrain@sha256:0123"
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "2"}
    assert {e["name"] for e in trainer["env"]} == {
        "JUDGE_TOKEN",
        "POSTTRAIN_HEARTBEAT_SECONDS",
        "POSTTRAIN_TRAINJOB",
    }
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "posttrain"
    patch = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    pod = patch["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"pool": "h200"}
    assert pod["metadata"]["labels"]["posttrain/stage"] == "rl"


def test_an_unknown_key_is_refused(request_: Request) -> None:
    job = made(request_)
    planted = copy.deepcopy(job)
    planted["spec"]["trainer"]["gpus"] = 8
    assert any("gpus" in fault for fault in faults(planted))


def test_the_name_is_that_of_the_work(request_: Request) -> None:
    name = made(request_)["metadata"]["name"]
    assert made(request_, machines=3)["metadata"]["name"] == name
    config = request_.config.model_copy(update={"seed": 7})
    assert made(replace(request_, config=config))["metadata"]["name"] != name


def test_inputs_are_shared_and_put_there_once(request_: Request) -> None:
    made(request_)
    assert request_.run_folder
    place = request_.run_folder / "trainjob/rl/inputs/prompts/0"
    assert read_manifest(place) == read_manifest(request_.inputs["prompts"])  # type: ignore[arg-type]
    before = place.stat().st_ino
    made(request_)
    assert place.stat().st_ino == before


def test_the_runtime_is_valid_and_the_one_that_is_named() -> None:
    runtime = yaml.safe_load(RUNTIME_FILE.read_text(encoding="utf-8"))
    assert faults(runtime) == []
    assert (runtime["kind"], runtime["metadata"]["name"]) == ("TrainingRuntime", RUNTIME)


@pytest.mark.parametrize(
    "arguments",
    [["sft", "--machines", "2"], ["rl", "--machines", "0"], ["rl", "--machines", "2"]],
    ids=["another_stage", "none", "no_cluster"],
)
def test_refused_before_work(
    arguments: list[str],
    request_: Request,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    line = command_line(request_)
    if arguments[0] == "sft":
        ports = [word for word in line if word.startswith(("--policy", "--trained", "--store"))]
        line = ["sft", *ports, f"--demonstrations={request_.inputs['prompts']}"]
    assert main([*line, *arguments[1:]]) == 2
    told = capsys.readouterr().err
    assert "--machines" in told
    assert ("torchrun --nnodes" in told) == (arguments == ["rl", "--machines", "2"])


def test_a_run_folder_on_the_pods_own_disk_is_refused(
    request_: Request, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = replace(request_, run_folder=tmp_path_factory.mktemp("own"))
    with pytest.raises(ConfigError, match="not on a shared volume"):
        execute_on(elsewhere, 2)
    assert cluster.created == []


def test_outside_a_pod_is_refused(request_: Request, cluster: Cluster) -> None:
    cluster.pods.clear()
    with pytest.raises(ConfigError, match="not in a pod"):
        execute_on(request_, 2)


def test_a_trainjob_of_another_image_is_not_done_again_here(
    request_: Request, cluster: Cluster
) -> None:
    cluster.on_create = lambda job: cluster.end(job["metadata"]["name"], "Complete")
    with pytest.raises(ConfigError, match="its image holds other code"):
        execute_on(request_, 2, poll_seconds=0.02)


def test_kustomize_renders_the_runtime() -> None:
    listed = yaml.safe_load((RUNTIME_FILE.parent / "kustomization.yaml").read_text())
    assert RUNTIME_FILE.name in listed["resources"]
