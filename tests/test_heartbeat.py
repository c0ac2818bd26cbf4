"""A stage that hangs is ended with 75, one that gets on is left alone: real processes."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, time
from pathlib import Path
from posttrain.heartbeat import watched
from posttrain.journal import Journal
journal = Journal(Path(sys.argv[1]))

def stuck():
    time.sleep(60)

with watched():
    for step in range(8):
        journal.log(step, loss=1.0)
        time.sleep(0.2)
    if sys.argv[2] == "hang":
        stuck()
time.sleep(float(sys.argv[3]))
print("done")
"""
Ended = tuple[int, str, str]


def run(folder: Path, what: str, afterwards: str = "0", seconds: str = "1") -> Ended:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), what, afterwards],
        env=os.environ | {"POSTTRAIN_HEARTBEAT_SECONDS": seconds},
        capture_output=True,
        text=True,
        timeout=50,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_silence_is_noticed_and_says_where_it_was(tmp_path: Path) -> None:
    code, out, told = run(tmp_path, "hang")
    assert (code, out) == (75, "")
    assert "no sign of life for 1 s" in told
    assert "in stuck" in told


def test_a_stage_that_gets_on_may_take_longer_than_the_silence(tmp_path: Path) -> None:
    """And once it is done nobody watches any more."""
    assert run(tmp_path, "work", afterwards="1.5") == (0, "done\n", "")


def test_without_the_variable_nobody_watches(tmp_path: Path) -> None:
    assert run(tmp_path, "work", seconds="")[0] == 0


def test_a_mistyped_number_is_told_before_any_work(tmp_path: Path) -> None:
    code, out, told = run(tmp_path, "work", seconds="soon")
    assert (code, out) == (1, "")
    assert "bad POSTTRAIN_HEARTBEAT_SECONDS" in told
