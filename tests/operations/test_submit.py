"""Submitting and scheduling on real HTTP servers that record what they are sent."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.operations.conftest import Server

from posttrain.cli import main

RUNS = "/apis/v2beta1/runs"
RECURRING = "/apis/v2beta1/recurringruns"
WORKFLOWS = "/api/v1/workflows/posttrain"
CRONS = "/api/v1/cron-workflows/posttrain"
SCHEMA = Path(os.environ.get("POSTTRAIN_SCHEMAS", "../shared/schemas")) / "argo/schema.json"


def test_a_run_on_kubeflow(kubeflow: Server, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["submit", "--host", kubeflow.url, "--param", "seed=3", "--param", "recipe=real"]
    assert main([*argv, "--param", 'train_nodes={"pool": "h200"}', "--name", "mine"]) == 0
    run = kubeflow.sent("POST", RUNS)
    assert (run["experiment_id"], run["display_name"]) == ("e1", "mine")
    assert run["runtime_config"]["parameters"] == {
        "seed": 3,
        "recipe": "real",
        "train_nodes": {"pool": "h200"},
    }
    assert "rejected-sft" in run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
    assert "kubernetes" in run["pipeline_spec"]["platform_spec"]["platforms"]
    said = capsys.readouterr()
    assert said.out == f"run r1: {kubeflow.url}/#/runs/details/r1\n"
    assert "posttrain status r1 --to kubeflow" in said.err


@pytest.mark.parametrize("lost", [1, 2])
def test_an_answer_lost_on_the_way_makes_no_second_run(kubeflow: Server, lost: int) -> None:
    """The server carries the request out, and the connection breaks before it says so."""
    kubeflow.hang_up["POST", RUNS] = lost
    assert main(["submit", "--host", kubeflow.url]) == 0
    assert len(kubeflow.all_sent("POST", RUNS)) == 1


def test_nor_does_it_on_argo(server: Server) -> None:
    made: set[str] = set()

    def create(query: dict[str, str], body: Any) -> tuple[int, Any]:
        name = body["workflow"]["metadata"]["name"]
        status = 409 if name in made else 200
        made.add(name)
        return status, body["workflow"]

    server.answers["POST", WORKFLOWS] = create
    server.hang_up["POST", WORKFLOWS] = 2
    assert main(["submit", "--to", "argo", "--host", server.url]) == 0
    assert len(server.all_sent("POST", WORKFLOWS)) == 3
    assert len(made) == 1


def test_who_gives_up_is_told_the_name(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["POST", WORKFLOWS] = (503, {"message": "starting"})
    assert main(["submit", "--to", "argo", "--host", server.url, "--name", "night-7"]) == 75
    assert "--name night-7" in capsys.readouterr().err


def test_a_workflow_on_argo(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/api/v1/workflows/team"
    server.answers["POST", path] = (200, {})
    argv = ["submit", "--to", "argo", "--host", server.url, "--namespace", "team"]
    assert main([*argv, "--param", "train_accelerators=1", "--name", "mine"]) == 0
    workflow = server.sent("POST", path)["workflow"]
    assert workflow["metadata"]["name"] == "mine"
    assert workflow["metadata"]["namespace"] == "team"
    assert "generateName" not in workflow["metadata"]
    rl = next(t for t in workflow["spec"]["templates"] if t["name"] == "rl")
    assert rl["container"]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "run mine:" in capsys.readouterr().out


def test_requests_to_argo_have_its_schemas_fields(server: Server) -> None:
    if not SCHEMA.is_file():
        pytest.skip(f"no Argo schema at {SCHEMA}; name its folder in POSTTRAIN_SCHEMAS")
    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["definitions"]
    server.answers["POST", WORKFLOWS] = (200, {})
    server.answers["PUT", f"{WORKFLOWS}/mine/stop"] = (200, {})
    server.answers["POST", CRONS] = (200, {})
    server.answers["PUT", f"{CRONS}/nightly-eval/suspend"] = (200, {})
    server.answers["GET", CRONS] = (200, {"items": None})
    to = ["--to", "argo", "--host", server.url]
    assert main(["submit", *to, "--name", "mine"]) == 0
    assert main(["cancel", "mine", *to]) == 0
    put = ["schedule", "put", *to, "--pipeline", "nightly_eval", "--cron", "0 4 * * *"]
    assert main(put) == 0
    assert main(["schedule", "pause", "nightly-eval", *to]) == 0
    for (method, path), name in {
        ("POST", WORKFLOWS): "WorkflowCreateRequest",
        ("PUT", f"{WORKFLOWS}/mine/stop"): "WorkflowStopRequest",
        ("POST", CRONS): "CreateCronWorkflowRequest",
        ("PUT", f"{CRONS}/nightly-eval/suspend"): "CronWorkflowSuspendRequest",
    }.items():
        known = definitions[f"io.argoproj.workflow.v1alpha1.{name}"]["properties"]
        assert set(server.sent(method, path)) <= set(known)


def test_a_schedule_on_kubeflow_is_made_replaced_and_removed(
    kubeflow: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--host", kubeflow.url]
    put = ["schedule", "put", *to, "--pipeline", "nightly_eval", "--cron"]
    assert main([*put, "30 2 * * *"]) == 0
    sent = kubeflow.sent("POST", RECURRING)
    assert sent["trigger"]["cron_schedule"]["cron"] == "0 30 2 * * *"
    assert (sent["max_concurrency"], sent["no_catchup"]) == (1, True)
    assert (sent["mode"], sent["display_name"]) == ("ENABLE", "nightly-eval")
    for path in (f"{RECURRING}/r1", f"{RECURRING}/r2"):
        kubeflow.answers["DELETE", path] = (200, {})
    assert main([*put, "30 4 * * *"]) == 0
    kubeflow.sent("DELETE", f"{RECURRING}/r1")
    order = [(method, path) for method, path, _, _ in kubeflow.requests]
    assert order.index(("DELETE", f"{RECURRING}/r1")) > order.index(("POST", RECURRING))
    capsys.readouterr()
    assert main(["schedule", "list", *to]) == 0
    assert "nightly-eval  30 4 * * * UTC  on" in capsys.readouterr().out


def test_pausing_on_kubeflow(kubeflow: Server, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--host", kubeflow.url]
    assert main(["schedule", "put", *to, "--cron", "0 1 * * *", "--name", "nights"]) == 0
    kubeflow.answers["POST", f"{RECURRING}/r1:disable"] = (200, {})
    assert main(["schedule", "pause", "nights", *to]) == 0
    assert len(kubeflow.all_sent("POST", f"{RECURRING}/r1:disable")) == 1
    assert main(["schedule", "pause", "night", *to]) == 2
    assert "did you mean `nights`?" in capsys.readouterr().err


def test_a_schedule_on_argo_is_made_and_then_replaced(server: Server) -> None:
    server.answers["POST", CRONS] = (200, {})
    argv = ["schedule", "put", "--to", "argo", "--host", server.url, "--pipeline", "nightly_eval"]
    assert main([*argv, "--cron", "0 4 * * *"]) == 0
    assert server.sent("POST", CRONS)["cronWorkflow"]["spec"]["schedules"] == ["0 4 * * *"]
    there = {"metadata": {"name": "nightly-eval", "resourceVersion": "41"}}
    there["spec"] = {"schedules": ["0 4 * * *"], "suspend": True}  # type: ignore[assignment]
    server.answers["GET", f"{CRONS}/nightly-eval"] = (200, there)
    server.answers["PUT", f"{CRONS}/nightly-eval"] = (200, there)
    assert main([*argv, "--cron", "0 5 * * *"]) == 0
    sent = server.sent("PUT", f"{CRONS}/nightly-eval")["cronWorkflow"]
    assert sent["metadata"]["resourceVersion"] == "41"
    assert sent["spec"]["schedules"] == ["0 5 * * *"]
    assert sent["spec"]["suspend"] is True


def test_a_token_by_reference(kubeflow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert main(["submit", "--host", kubeflow.url, "--token-env", "MY_TOKEN"]) == 0
    tokens = {
        headers.get("Authorization", headers.get("authorization"))
        for _, _, headers, _ in kubeflow.requests
    }
    assert tokens == {"Bearer abc"}


@pytest.mark.parametrize("to", ["kubeflow", "argo"])
@pytest.mark.parametrize(
    ("status", "answer", "code", "said"),
    [
        (401, {"message": "no token"}, 2, "refused (401)"),
        (403, {"message": "not yours"}, 2, "not yours"),
        (400, {"message": "bad spec"}, 2, "bad spec"),
        (503, {"message": "starting"}, 75, "answered 503"),
        (200, b"<html>", 2, "did not answer JSON"),
    ],
)
def test_refusals(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    to: str,
    status: int,
    answer: Any,
    code: int,
    said: str,
) -> None:
    server.answers["GET", RUNS] = (status, answer)
    server.answers["POST", WORKFLOWS] = (status, answer)
    assert main(["submit", "--to", to, "--host", server.url]) == code
    assert said in capsys.readouterr().err


def test_kubeflow_may_refuse_late(kubeflow: Server, capsys: pytest.CaptureFixture[str]) -> None:
    kubeflow.answers["POST", RUNS] = (403, {"error": "no such service account"})
    assert main(["submit", "--host", kubeflow.url]) == 2
    assert "no such service account" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["kubeflow", "argo"])
@pytest.mark.usefixtures("server")
def test_nobody_there(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    assert main(["submit", "--to", to, "--host", url]) == 75
    assert "cannot reach the server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["submit", "--param", "sed=1"], "did you mean `seed`?"),
        (["submit", "--param", "seed=one"], "give a value of type Integer"),
        (["submit", "--param", "train_nodes=[]"], "give a value of type Dict"),
        (["submit", "--param", "budget=much"], "give a value of type Float"),
        (["submit", "--param", "seed=x", "--param", "nonsense"], "unknown parameter `nonsense`"),
        (["submit", "--pipeline", "posttrianing"], "did you mean `posttraining`?"),
        (["submit", "--host", "somewhere"], "give https://HOST"),
        (["submit", "--name", "My Run"], "lower-case letters"),
        (["schedule", "put", "--cron", "often"], "five fields are wanted"),
    ],
)
def test_bad_requests_are_refused_here(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_token_is_never_sent_in_the_clear(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGO_TOKEN", "secret-token")
    assert main(["submit", "--to", "argo", "--host", "http://argo.example.com"]) == 2
    said = capsys.readouterr().err
    assert "token without TLS" in said
    assert "secret-token" not in said
