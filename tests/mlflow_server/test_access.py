"""A server with users: name and password go by MLflow's variables, and a refusal stops nothing."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import Manifest, write_json
from posttrain.cli import main
from posttrain.journal import Journal
from posttrain.mlflow_client import connect
from posttrain.mlflow_setup import apply, key, links, read_setup, state_of
from posttrain.registry import Evidence, Registry, RegistryError
from posttrain.tracking import live, ship

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "mlflow/experiments.yaml"


@pytest.fixture(scope="module")
def server(mlflow: Callable[..., Any]) -> Any:
    return mlflow()


def write_run(folder: Path, steps: int = 3) -> Path:
    journal = Journal(folder / "stages" / "rl", scratch=folder / "scratch")
    for step in range(steps):
        journal.log(step, reward=0.1 * step)
    return folder


def test_the_right_password_sends_and_registers(
    server: Any, user: None, tmp_path: Path, seal: Callable[..., Manifest]
) -> None:
    assert ship(write_run(tmp_path / "run"), server.uri) == f"tracking: 0 tasks in {server.uri}"
    (run,) = connect(server.uri).search_runs(
        [connect(server.uri).get_experiment_by_name("posttrain").experiment_id],
        "tags.task = 'rl'",
    )
    assert run.data.metrics == {"reward": 0.2}
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "weights.txt").write_text("ten")
    seal(policy, "model")
    registry = Registry(server.uri, "with-users")
    given = Evidence(scores={"suite": {"1": 1.0}})
    version = registry.register(policy, "a" * 64, given, upload=True)
    registry.promote(version)
    assert registry.holder("champion") == version
    assert registry.evidence(version) == given


def test_a_wrong_password_is_told_in_a_line_and_loses_nothing(
    server: Any,
    user: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("posttrain.tracking.SEND_EVERY_SECONDS", 0.1)
    run = write_run(tmp_path / "run")
    with monkeypatch.context() as wrong:
        wrong.setenv("MLFLOW_TRACKING_PASSWORD", "not the password")
        with live(run, server.uri):
            time.sleep(1.0)
        (told,) = capsys.readouterr().err.splitlines()
        assert "refuses the user" in told
        assert "MLFLOW_TRACKING_PASSWORD" in told
        assert main(["track", str(run), "--to", server.uri]) == 2
        with pytest.raises(RegistryError, match="MLFLOW_TRACKING_PASSWORD"):
            Registry(server.uri, "with-users").holder("champion")
    assert main(["track", str(run), "--to", server.uri]) == 0


def test_the_shipped_setup_is_applied_once(server: Any, user: None) -> None:
    setup = read_setup(SETUP)
    done = apply(setup, server.uri)
    assert "experiment posttrain: view Reinforcement learning" in done
    assert "model posttrain-policy: made" in done
    assert apply(setup, server.uri) == []
    client = connect(server.uri)
    experiment = client.get_experiment_by_name("posttrain")
    assert "| `git.sha` | commit of the code |" in experiment.tags["mlflow.note.content"]
    client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", "changed")
    assert apply(setup, server.uri) == ["experiment posttrain: note"]
    link = next(x for x in links(setup, server.uri) if x.startswith("Judges"))
    assert f"experiments/{experiment.experiment_id}/runs?viewStateShareKey={key('Judges')}" in link
    # What the pages search for must be a search that the server takes.
    for name, wanted in setup.experiments.items():
        number = client.get_experiment_by_name(name).experiment_id
        for title, view in wanted.views.items():
            state = state_of(title, view)
            client.search_runs([number], state["searchFilter"], order_by=[state["orderByKey"]])


def test_tls_by_mounted_files(
    mlflow: Callable[..., Any],
    user: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-keyout", "tls.key", "-out", "tls.crt", "-subj", "/CN=mlflow"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    write_json(tmp_path / "run/launch.json", {"id": "1", "name": "demo", "started": 0.0})
    run = write_run(tmp_path / "run")
    server = mlflow(
        MLFLOW_TLS_CERT=str(tmp_path / "tls.crt"), MLFLOW_TLS_KEY=str(tmp_path / "tls.key")
    )
    assert server.uri.startswith("https:")
    assert "cannot be reached" in ship(run, server.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(tmp_path / "tls.crt"))
    assert ship(run, server.uri).startswith("tracking: 0 tasks")
