"""Retries by an orchestrator that cannot read exit codes: each attempt a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import write_json
from posttrain.attempts import FORGET_SECONDS, TRIES, Attempt, Ledger

COMPONENT = """
import json, sys
from kfp import dsl
from components.raw.component import raw
ports = {port: dsl.Artifact(uri=f"{sys.argv[1]}/{port}") for port in ("rows", "metrics")}
ports["metrics"].log_metric = lambda name, value: None
raw.python_func(**ports, **json.loads(sys.argv[2]))
"""
ROOT = Path(__file__).parents[1]


def pod(folder: Path, **parameters: Any) -> subprocess.Popen[str]:
    """Start the body of a component as a pod does."""
    environment = os.environ | {
        "POSTTRAIN_STORE": str(folder / "artifacts"),
        "POSTTRAIN_RUN_ID": "run-1",
        "POSTTRAIN_TRACKING": "off",
        "POSTTRAIN_GRACE_SECONDS": "0.2",
    }
    return subprocess.Popen(
        [sys.executable, "-c", COMPONENT, str(folder / "out"), json.dumps(parameters)],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, told = process.communicate(timeout=60)
    return process.returncode, told


def rows(count: int) -> str:
    return json.dumps({"raw": {"sources": [{"name": "procedural", "prompts": count}]}})


def test_a_permanent_failure_is_told_again_and_not_tried_again(tmp_path: Path) -> None:
    code, told = ended(pod(tmp_path, recipe="absent"))
    assert code == 2
    assert "unknown recipe `absent`" in told
    code, told = ended(pod(tmp_path, recipe="absent"))
    assert code == 2
    assert told.startswith("not tried again after exit code 2\nerror: unknown recipe `absent`")
    # Other data of the same run is another matter: the refusal was of this task alone.
    folder = tmp_path / "runs/run-1/attempts"
    assert [path.name for path in folder.iterdir()] == ["raw"]
    assert [each.code for each in Ledger(folder.parent, "raw", {}).read()] == [2, 2]


def test_a_machine_taken_away_is_no_failure(tmp_path: Path) -> None:
    """Killed, then preempted, then done."""
    work = tmp_path / "artifacts/work"
    for number, wanted in ((signal.SIGKILL, -9), (signal.SIGTERM, 75)):
        process = pod(tmp_path, recipe="demo", overrides=rows(200_000))
        until(lambda: any(work.glob("*/outputs")))
        process.send_signal(number)
        assert ended(process)[0] == wanted
        shutil.rmtree(work)
    assert ended(pod(tmp_path, recipe="demo", overrides=rows(20)))[0] == 0
    codes = [each.code for each in Ledger(tmp_path / "runs/run-1", "raw", {}).read()]
    assert codes == [None, 75, 0]


def until(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def keep(ledger: Ledger, *codes: int | None, ended: float = 1000.0) -> None:
    """Write attempts as they would have been written."""
    for i, code in enumerate(codes):
        attempt = Attempt(ended - 1, None if code is None else ended, code, f"attempt {i}")
        write_json(ledger.folder / f"{i:03}.json", attempt._asdict())


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ((), None),
        ((75, 75, None, 75), None),
        ((3,), "attempt 0"),
        ((75, 2, None, 75), "attempt 1"),
        ((1,) * (TRIES - 1), None),
        ((1, 75, *(1,) * (TRIES - 1)), f"attempt {TRIES}"),
    ],
)
def test_which_past_forbids_another_attempt(
    tmp_path: Path, codes: tuple[int | None, ...], told: str | None
) -> None:
    ledger = Ledger(tmp_path, "rl", {})
    keep(ledger, *codes)
    verdict = ledger.verdict(1001.0)
    assert (verdict and verdict.told) == told


def test_a_person_who_comes_back_later_is_heard(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "rl", {})
    keep(ledger, 2, ended=1000.0)
    assert ledger.verdict(1000.0 + FORGET_SECONDS - 1)
    assert ledger.verdict(1000.0 + FORGET_SECONDS + 1) is None


def test_a_torn_file_is_an_attempt_without_an_end(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "rl", {})
    keep(ledger, 75)
    (ledger.folder / "001.json").write_text('{"began": 1')
    assert [each.code for each in ledger.read()] == [75, None]


def test_parts_of_a_loop_have_ledgers_of_their_own(tmp_path: Path) -> None:
    first, second = (Ledger(tmp_path, "curate_map", {"part": part}) for part in ("1/2", "2/2"))
    assert first.folder != second.folder
    assert first.attempt(lambda: 3) == 3
    assert second.attempt(lambda: 0) == 0


def test_a_bug_is_an_end_too(tmp_path: Path) -> None:
    def broken() -> int:
        print("error: so much was told", file=sys.stderr)
        raise ZeroDivisionError

    ledger = Ledger(tmp_path, "rl", {})
    with pytest.raises(ZeroDivisionError):
        ledger.attempt(broken)
    (attempt,) = ledger.read()
    assert (attempt.code, attempt.told) == (1, "error: so much was told")
