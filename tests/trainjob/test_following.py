"""Following a TrainJob to its end, whatever the end is."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trainjob.cluster import Cluster, Object

from posttrain import interruption
from posttrain.artifacts import write_json
from posttrain.errors import ConfigError, DataError, Fault, PosttrainError, TransientError
from posttrain.trainjob.api import Api
from posttrain.trainjob.following import Following

NAME = "rl-0123"
JOB: Object = {
    "metadata": {"name": NAME},
    "spec": {"trainer": {"numNodes": 2, "numProcPerNode": 8}},
}
RUNNING: Object = {"phase": "Running"}
TAKEN: Object = {
    "phase": "Failed",
    "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "spot is over"}],
}
STARVED: Object = {
    "phase": "Failed",
    "containerStatuses": [
        {"name": "node", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    ],
}


@pytest.fixture
def follow(cluster: Cluster, tmp_path: Path) -> Callable[[], None]:
    """Start or find the TrainJob, and follow it."""
    return Following(Api.here(""), JOB, tmp_path, "rl", 0.02).until_done


def test_its_log_is_passed_on_once(
    follow: Callable[[], None], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(job: Object) -> None:
        cluster.add_pod(NAME, RUNNING)
        cluster.add_pod(
            NAME, RUNNING, "node-0-1", **{"batch.kubernetes.io/job-completion-index": "1"}
        )
        cluster.say(f"{NAME}-node-0-1", "of the second")
        for step in range(40):
            cluster.say(f"{NAME}-node-0-0", f"step {step}")
            threading.Event().wait(0.005)
        cluster.end(NAME, "Complete")

    cluster.on_create = lambda job: threading.Thread(target=work, args=(job,)).start()
    follow()
    told = capsys.readouterr().err
    assert [told.count(f"step {step}\n") for step in range(40)] == [1] * 40
    assert "of the second" not in told
    assert f"started {NAME}: 2 machines, 8 processes on each" in told


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (TAKEN, 1, TransientError),
        (STARVED, None, ConfigError),
        (RUNNING, 2, ConfigError),
        (RUNNING, 3, DataError),
        (RUNNING, 75, TransientError),
        (RUNNING, None, PosttrainError),
    ],
    ids=["taken_away", "out_of_memory", "option", "data", "preempted", "bug"],
)
def test_a_failure_has_the_code_of_the_stage(
    follow: Callable[[], None],
    cluster: Cluster,
    tmp_path: Path,
    status: Object,
    code: int | None,
    error: type[PosttrainError],
) -> None:
    write_json(tmp_path / "code.json", {"code": 0})

    def fail(job: Object) -> None:
        cluster.add_pod(NAME, status)
        if code is not None:
            write_json(tmp_path / "code.json", {"code": code})
        cluster.end(NAME, "Failed", "a job has failed")

    cluster.on_create = fail
    with pytest.raises(PosttrainError) as caught:
        follow()
    assert type(caught.value) is error


def test_one_that_is_at_work_is_followed_and_no_second_one_started(
    follow: Callable[[], None], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs[NAME] = JOB | {"status": {"conditions": []}}
    threading.Timer(0.1, cluster.end, (NAME, "Complete")).start()
    follow()
    assert cluster.created == []
    assert "at work already" in capsys.readouterr().err


@pytest.mark.parametrize("ended", [True, False], ids=["failed", "being_deleted"])
def test_an_earlier_one_makes_room(
    follow: Callable[[], None], cluster: Cluster, ended: bool
) -> None:
    cluster.jobs[NAME] = {"metadata": {"name": NAME}, "spec": {}}
    cluster.lingering = 3
    if ended:
        cluster.end(NAME, "Failed")
    else:
        cluster.jobs[NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.on_create = lambda job: cluster.end(NAME, "Complete")
    follow()
    assert len(cluster.created) == 1
    assert len(cluster.deleted) == ended


def test_an_api_that_is_away_for_a_while_ends_nothing(
    follow: Callable[[], None], cluster: Cluster
) -> None:
    def start(job: Object) -> None:
        cluster.broken = 6
        threading.Timer(0.3, cluster.end, (NAME, "Complete")).start()

    cluster.on_create = start
    follow()
    assert (cluster.broken, len(cluster.created)) == (0, 1)


def test_one_that_somebody_deleted_is_transient(
    follow: Callable[[], None], cluster: Cluster
) -> None:
    cluster.on_create = lambda job: cluster.jobs.clear()
    with pytest.raises(TransientError, match="gone"):
        follow()


@pytest.mark.parametrize(
    ("verb", "kind"), [("create", "trainjobs"), ("get", "trainjobs")], ids=["create", "get"]
)
def test_a_refusal_says_what_must_be_allowed(
    follow: Callable[[], None], cluster: Cluster, verb: str, kind: str
) -> None:
    cluster.denied = {(verb, kind)}
    with pytest.raises(ConfigError, match=f"not allowed to {verb} {kind}"):
        follow()


def test_who_is_asked_to_stop_ends_it(follow: Callable[[], None], cluster: Cluster) -> None:
    spent = ConfigError(Fault("budget spent", "run", "", ""))
    cluster.on_create = lambda job: threading.Timer(0.1, interruption.ask, (spent,)).start()
    listening, working = interruption.listening(), interruption.at_work()
    with listening, pytest.raises(ConfigError, match="budget spent"), working:
        follow()
    assert cluster.deleted == [NAME]
