"""The whole way: a pod starts a TrainJob, two processes under `torchrun` do its command, and the
pod takes the result from the store. Only what lies between API and command is this file's.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.trainjob.cluster import Cluster, Object
from tests.trainjob.conftest import command_line

from posttrain.artifacts import read_manifest
from posttrain.cli import main
from posttrain.execution import Request, execute
from posttrain.policies import load_policy


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def machine(job: Object, rank: int, port: int) -> subprocess.Popen[str]:
    """One node: Kubeflow Trainer's environment and the command, on a CPU with one process."""
    trainer = job["spec"]["trainer"]
    given = {e["name"]: e["value"] for e in trainer["env"] if "value" in e}
    torch_says = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }
    torchrun, *rest = trainer["command"]
    assert torchrun == "torchrun"
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *rest],
        env=os.environ | given | torch_says | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trained_by(cluster: Cluster, job: Object, digests: list[str]) -> None:
    """What the controller and the kubelets do."""
    name, port = job["metadata"]["name"], free_port()
    nodes = [machine(job, rank, port) for rank in range(2)]
    cluster.add_pod(name, {"phase": "Running"})
    others = threading.Thread(target=nodes[1].communicate)
    others.start()
    for line in nodes[0].stdout or ():
        cluster.say(f"{name}-node-0-0", line.rstrip())
    others.join()
    failed = any(node.wait() for node in nodes)
    if not failed:
        (made,) = cluster.shared.glob("runs/*/trainjob/rl/outputs/trained")
        digests.append(read_manifest(made).digest)
    cluster.end(name, "Failed" if failed else "Complete", "a job has failed" if failed else "")


@pytest.mark.slow
def test_two_machines_do_the_work_and_the_pod_takes_it_from_the_store(
    request_: Request, cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    digests: list[str] = []
    cluster.on_create = lambda job: threading.Thread(
        target=trained_by, args=(cluster, job, digests)
    ).start()
    line = [*command_line(request_), "--machines", "2"]
    assert main(line) == 0, capsys.readouterr().err
    told = capsys.readouterr().err
    assert "rl step 2/2" in told
    assert "rl: cached" in told
    out = request_.outputs["trained"]
    assert [read_manifest(out).digest] == digests
    assert len(cluster.created) == len(cluster.deleted) == 1
    assert not (tmp_path / "runs/one/trainjob/rl").exists()

    shutil.rmtree(out)
    assert main(line) == 0
    assert ([read_manifest(out).digest], len(cluster.created)) == (digests, 1)

    alone = replace(request_, store=tmp_path / "other", outputs={"trained": tmp_path / "alone"})
    record = execute(replace(alone, run_folder=tmp_path / "runs/alone"))
    here, there = (load_policy(path).model.state_dict() for path in (tmp_path / "alone", out))
    start = load_policy(request_.inputs["policy"]).model.state_dict()  # type: ignore[arg-type]
    assert any(not torch.equal(weight, here[name]) for name, weight in start.items())
    for name, weight in here.items():
        torch.testing.assert_close(there[name], weight, atol=1e-5, rtol=1e-4, msg=name)
    kept = json.loads((tmp_path / "runs/one/stages/rl.json").read_text())
    assert kept["key_parts"] == record["key_parts"]


def test_a_pod_that_dies_leaves_it_and_one_that_is_told_to_end_ends_it(
    request_: Request, cluster: Cluster
) -> None:
    line = [sys.executable, "-m", "posttrain.cli", *command_line(request_), "--machines", "2"]

    def pod(number: int) -> "subprocess.Popen[str]":
        started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        for text in started.stderr or ():
            if f"{'started' if number == 0 else 'following'} rl-" in text:
                return started
        raise AssertionError("it has not begun")

    first = pod(0)
    first.kill()
    first.wait()
    assert (len(cluster.created), cluster.deleted) == (1, [])
    second = pod(1)
    time.sleep(0.2)
    second.send_signal(signal.SIGTERM)
    _, told = second.communicate(timeout=20)
    assert second.returncode == 75, told
    assert (len(cluster.created), len(cluster.deleted)) == (1, 1)
