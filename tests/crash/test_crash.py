"""Killed, starved or cut off at any point, a stage ends the same or says what is wrong.

A part of the matrix; `make crash` runs more of it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import (
    Manifest,
    content_files,
    digest_of,
    publish,
    read_manifest,
    write_manifest,
)
from posttrain.durable import settle
from posttrain.journal import Journal, read_curves

ROOT = Path(__file__).parents[2]
EVERY = 23


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("crash")
    command = [sys.executable, "-m", "tests.crash.matrix", "--every", str(EVERY), "--out", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (out / "matrix.json").is_file(), done.stderr[-4000:]
    found: dict[str, Any] = json.loads((out / "matrix.json").read_text())
    return found | {"told": done.stderr}


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_false_is_taken_for_success(matrix: dict[str, Any]) -> None:
    counts = matrix["counts"]
    wrong = {name: counts[name] for name in ("lost", "false_success", "untyped", "late")}
    assert not any(wrong.values()), matrix["told"][-4000:]


@pytest.mark.slow
def test_the_faults_come_about(matrix: dict[str, Any]) -> None:
    """Most points must bite: what ends well at once says nothing."""
    counts = matrix["counts"]
    assert counts["points"] >= 30
    assert counts["equal"] + counts["typed"] >= 0.7 * counts["points"]
    assert counts["equal"] >= 10
    assert counts["typed"] >= 5


SCRIPT = """
import sys
from pathlib import Path
from tests.crash.faults import Fault, inject
from posttrain.artifacts import write_rows, read_manifest, publish
from posttrain.records import Prompt
home = Path(sys.argv[1])
gauge = inject(Fault(sys.argv[2], "rename", int(sys.argv[3])), home)
from tests.crash.test_crash import sealed
sealed(home / "store" / "rows", settled=sys.argv[4] == "settled")
publish(home / "store" / "rows", home / "out" / "rows", read_manifest(home / "store" / "rows"))
"""


def sealed(folder: Path, *, settled: bool) -> None:
    """A folder with content and a manifest, with or without what makes it durable."""
    folder.mkdir()
    (folder / "rows.jsonl").write_text("content\n" * 100)
    files = content_files(folder)
    if settled:
        settle(folder)
    about: dict[str, Any] = {"stage": "raw", "task": "raw", "port": "rows", "config": {}, "seed": 0}
    write_manifest(
        folder,
        Manifest(
            record="RawRow",
            rows=None,
            digest=digest_of(files),
            files=files,
            inputs={},
            report={},
            **about,
        ),
    )


def powerless(home: Path, at: int, how: str) -> Path:
    """Publish a folder; the machine loses power before the `at`-th rename, without what no fsync
    has put on disk. Returns the folder in the store."""
    for name in ("store", "out"):
        (home / name).mkdir(parents=True)
    command = [sys.executable, "-c", SCRIPT, str(home), "power", str(at), how]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    return home / "store" / "rows"


@pytest.mark.slow
def test_a_machine_that_crashes_leaves_no_manifest_over_missing_bytes(tmp_path: Path) -> None:
    """The third rename is that of publishing: by then the manifest of the store stands."""
    whole = powerless(tmp_path / "settled", 3, "settled")
    assert (whole / "manifest.json").is_file()
    assert (whole / "rows.jsonl").stat().st_size == 800
    torn = powerless(tmp_path / "unsettled", 3, "unsettled")
    assert (torn / "manifest.json").is_file()
    assert not (torn / "rows.jsonl").stat().st_size, "the fault itself must be able to bite"


def test_a_torn_line_swallows_none_of_the_next_writer(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.log(1, loss=2.0)
    with first.curves.open("a") as file:
        file.write('{"step": 2, "ti')
    second = Journal(tmp_path)
    second.log(2, loss=1.0)
    assert {p.step: p.value for p in read_curves(second.curves)} == {1: 2.0, 2: 1.0}


def test_what_a_killed_publisher_left_is_cleared_away(tmp_path: Path) -> None:
    for name in ("store", "out"):
        (tmp_path / name).mkdir()
    sealed(tmp_path / "store" / "rows", settled=True)
    for left in (".rows.1.partial", ".rows.1.discarded"):
        (tmp_path / "out" / left).mkdir()
    source = tmp_path / "store" / "rows"
    publish(source, tmp_path / "out" / "rows", read_manifest(source))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows"]
