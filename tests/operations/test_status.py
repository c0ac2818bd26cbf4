"""The same words for a run on Argo, on Kubeflow and in a folder: status, logs, cancel."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import kfp_server_api
import pytest
from tests.operations.conftest import Server

from posttrain.cli import main
from posttrain.cluster.argo import Argo
from posttrain.cluster.folder import run_of
from posttrain.cluster.http import Server as Client
from posttrain.costs.attempts import Attempt, keep
from posttrain.verbs import status as status_verb
from posttrain.verbs.status import exit_code, watched

RUNS = "/apis/v2beta1/runs"
WORKFLOWS = "/api/v1/workflows/posttrain"
SCHEMA = Path(os.environ.get("POSTTRAIN_SCHEMAS", "../shared/schemas")) / "argo/schema.json"


def node(name: str, kind: str, phase: str, **more: Any) -> dict[str, Any]:
    times = {"startedAt": "2026-11-20T02:30:00Z", "finishedAt": "2026-11-20T02:31:30Z"}
    found = {"id": name, "name": name, "displayName": name, "type": kind, "phase": phase}
    return found | (times if phase != "Pending" else {}) | more


NODES = [
    node("posttraining", "DAG", "Running", children=["raw", "sft", "rl", "gate"]),
    node("raw", "Retry", "Succeeded", children=["raw(0)"]),
    node("raw(0)", "Pod", "Succeeded", memoizationStatus={"hit": True, "key": "k"}),
    node("rejected-sft", "Retry", "Failed", children=["rejected-sft(0)", "rejected-sft(1)"]),
    node(
        "rejected-sft(0)",
        "Pod",
        "Failed",
        outputs={"exitCode": "75"},
        resourcesDuration={"cpu": 80, "memory": 10, "nvidia.com/gpu": 40},
    ),
    node(
        "rejected-sft(1)",
        "Pod",
        "Failed",
        outputs={"exitCode": "3"},
        message="Error (exit code 3)",
        resourcesDuration={"cpu": 100, "memory": 10, "nvidia.com/gpu": 50},
    ),
    node("rl", "Pod", "Pending", message="Unschedulable: 0/9 nodes: insufficient nvidia.com/gpu"),
]


@pytest.fixture
def argo(server: Server) -> Server:
    found = {
        "metadata": {"name": "mine"},
        "spec": {},
        "status": {"phase": "Running", "nodes": {each["id"]: each for each in NODES}},
    }
    server.answers["GET", f"{WORKFLOWS}/mine"] = (200, found)
    return server


def detail(name: str, pod: str, state: str, *children: str, **more: Any) -> dict[str, Any]:
    return {
        "run_id": "r1",
        "task_id": f"t-{pod}",
        "display_name": name,
        "pod_name": pod,
        "state": state,
        "start_time": "2026-11-20T02:30:00Z",
        "end_time": "2026-11-20T02:31:30Z",
        "child_tasks": [{"pod_name": child} for child in children],
    } | more


DETAILS = [
    detail("root-driver", "w-1", "SUCCEEDED"),
    detail("root", "w-2", "RUNNING", "w-3", "w-4"),
    detail("raw-driver", "w-3", "SUCCEEDED"),
    detail("raw", "w-10", "SUCCEEDED", "w-11"),
    detail("executor", "w-11", "SKIPPED"),
    detail("rejected-sft-driver", "w-4", "SUCCEEDED"),
    detail("rejected-sft", "w-5", "FAILED", "w-6"),
    detail("executor", "w-6", "FAILED", "w-7", "w-8"),
    detail("executor(0)", "w-7", "FAILED"),
    detail("executor(1)", "w-8", "FAILED", error={"code": 2, "message": "Error (exit code 3)"}),
    detail("rl-driver", "w-9", "PENDING", end_time="1970-01-01T00:00:00Z"),
]


@pytest.fixture
def ran(kubeflow: Server) -> Server:
    found = {
        "run_id": "r1",
        "display_name": "mine",
        "state": "RUNNING",
        "run_details": {"task_details": DETAILS},
    }
    kubeflow.answers["GET", RUNS] = (200, {"runs": [found]})
    kubeflow.answers["GET", f"{RUNS}/r1"] = (200, found)
    return kubeflow


def status(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["status", *argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return found | {task["name"]: task for task in found["tasks"]}


def test_status_on_argo(argo: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = status(["mine", "--to", "argo", "--host", argo.url], capsys)
    assert found["state"] == "running"
    assert found["raw"]["state"] == "cached"
    failed = found["rejected_sft"]
    assert (failed["state"], failed["retries"], failed["code"]) == ("failed", 1, 3)
    assert failed["seconds"] == 90.0
    assert "insufficient nvidia.com/gpu" in found["rl"]["reason"]
    assert found["rl"]["state"] == "pending"


def test_the_nodes_here_have_argos_fields() -> None:
    if not SCHEMA.is_file():
        pytest.skip(f"no Argo schema at {SCHEMA}; name its folder in POSTTRAIN_SCHEMAS")
    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["definitions"]
    known = definitions["io.argoproj.workflow.v1alpha1.NodeStatus"]["properties"]
    assert all(set(each) <= set(known) for each in NODES)


def test_status_on_kubeflow(ran: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mine", "r1"):
        found = status([name, "--host", ran.url, "--to", "kubeflow"], capsys)
        assert found["state"] == "running"
        failed = found["rejected_sft"]
        assert (failed["state"], failed["retries"]) == ("failed", 1)
        assert failed["reason"] == "Error (exit code 3)"
        assert found["raw"]["state"] == "cached"
        assert found["rl"] | {"seconds": 0} == {
            "name": "rl",
            "state": "pending",
            "seconds": 0,
            "retries": 0,
            "code": None,
            "reason": "its driver has not ended",
            "held": {},
        }


def test_the_details_here_have_kubeflows_fields() -> None:
    known = set(kfp_server_api.V2beta1PipelineTaskDetail.attribute_map.values())
    assert all(set(each) <= known for each in DETAILS)
    states = kfp_server_api.V2beta1RuntimeState.allowable_values
    assert {each["state"] for each in DETAILS} <= set(states)


def test_logs_on_argo(argo: Server, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"result": {"content": text, "podName": "p"}} for text in ("one", "two")]
    body = "\n".join(map(json.dumps, lines)).encode()
    argo.answers["GET", f"{WORKFLOWS}/mine/log"] = (200, body)
    to = ["--to", "argo", "--host", argo.url]
    assert main(["logs", "mine", "rejected_sft", *to, "--follow"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    path, query = argo.queries[-1]
    assert path == f"{WORKFLOWS}/mine/log"
    assert query["selector"] == "posttrain/task=rejected_sft"
    assert query["logOptions.follow"] == "true"
    assert main(["logs", "mine", "rejectd_sft", *to]) == 2
    assert "did you mean `rejected_sft`?" in capsys.readouterr().err


def test_logs_on_kubeflow_are_of_every_attempt(
    ran: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for pod in ("w-7", "w-8"):
        path = f"/apis/v1alpha1/runs/r1/nodes/{pod}/log"
        ran.answers["GET", path] = (200, f"from {pod}\n".encode())
    to = ["--to", "kubeflow", "--host", ran.url]
    assert main(["logs", "mine", "rejected-sft", *to]) == 0
    assert capsys.readouterr().out == "from w-7\nfrom w-8\n"
    assert main(["logs", "mine", "rl", *to]) == 2
    assert "no pod of it has started" in capsys.readouterr().err


def test_cancel(argo: Server, ran: Server) -> None:
    argo.answers["PUT", f"{WORKFLOWS}/mine/stop"] = (200, {})
    assert main(["cancel", "mine", "--to", "argo", "--host", argo.url]) == 0
    assert argo.sent("PUT", f"{WORKFLOWS}/mine/stop")["name"] == "mine"
    ran.answers["POST", f"{RUNS}/r1:terminate"] = (200, {})
    assert main(["cancel", "mine", "--host", ran.url]) == 0
    assert len(ran.all_sent("POST", f"{RUNS}/r1:terminate")) == 1


def test_the_cost_of_pods_on_argo(
    argo: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("accelerator_hour: {gpu: 4.0}\ncore_hour: 0.1\n", encoding="utf-8")
    argv = ["cost", "mine", "--to", "argo", "--host", argo.url, "--prices", str(prices)]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tasks"]["rejected_sft"]
    assert (found["accelerator_seconds"], found["core_seconds"]) == (90.0, 180.0)
    assert found["money"] == pytest.approx(90 / 3600 * 4.0 + 180 / 3600 * 0.1)


def attempt(task: str, state: Any, *, ago: float = 10.0, **more: Any) -> Attempt:
    now = time.time()
    begun = {"started": now - ago, "updated": now, "accelerators": 0, "kind": "", "cores": 1.0}
    about = {"task": task, "stage": task, "place": f"p{ago}", "state": state}
    return Attempt.model_validate(about | begun | more)


def test_status_of_a_folder(tmp_path: Path) -> None:
    now = time.time()
    launch = {"graph": "curation", "started": now - 100}
    (tmp_path / "launch.json").write_text(json.dumps(launch), encoding="utf-8")
    keep(tmp_path, attempt("raw", "failed", ago=900, code=3))
    keep(tmp_path, attempt("raw", "cached", ago=90, code=0))
    keep(tmp_path, attempt("curate_learn", "failed", ago=60, code=75))
    keep(tmp_path, attempt("curate_learn", "working", ago=30))
    keep(tmp_path, attempt("curate_map", "working", ago=80, updated=now - 70))
    run = run_of(tmp_path)
    assert run.state == "running"
    told = {task.name: (task.state, task.retries, task.code) for task in run.tasks}
    assert told == {
        "raw": ("cached", 0, 0),
        "curate_map": ("stopped", 0, None),
        "curate_learn": ("running", 1, None),
        "curate_reduce": ("pending", 0, None),
    }


def test_logs_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, attempt("raw", "failed", code=3))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/raw.log").write_text("one\ntwo\n", encoding="utf-8")
    assert main(["logs", str(tmp_path), "raw", "--follow"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert main(["status", str(tmp_path), "--watch"]) == 3
    assert "raw   failed" in capsys.readouterr().out
    assert main(["status", str(tmp_path / "nowhere")]) == 2


def test_watching_outlives_a_server_that_is_away_for_a_moment(
    argo: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_verb, "EVERY_SECONDS", 0.0)
    done = {"metadata": {"name": "mine"}, "spec": {}, "status": {"phase": "Failed", "nodes": {}}}
    answers: list[tuple[int, Any]] = [(503, {}), (503, {}), (503, {}), (200, done)]
    argo.answers["GET", f"{WORKFLOWS}/mine"] = lambda query, body: answers.pop(0)
    cluster = Argo(Client(argo.url, ""), None)
    run = watched(lambda: cluster.run("mine"), sys.stdout)
    assert (run.state, exit_code(run)) == ("failed", 1)
    assert capsys.readouterr().out.count("mine: failed") == 1
