"""Shards: neither cuts, processes nor a kill change what comes out; bad rows are told."""

import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from posttrain.artifacts import MAX_ROW_BYTES, Manifest, read_rows
from posttrain.curate.shards import cut, each, read
from posttrain.curate.stage import CurateConfig, CurateReport, run
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.raw.stage import RawConfig
from posttrain.raw.stage import run as run_raw
from posttrain.records import RawRow

OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
COUNTS = {"demonstrations": 150, "preferences": 150, "prompts": 150, "evaluation": 60}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory, seal: Callable[..., Manifest]) -> Path:
    """560 procedural rows with known dirt, about 170 KB."""
    folder = tmp_path_factory.mktemp("shards")
    config = RawConfig.model_validate({"sources": [{"name": "procedural", **COUNTS}]})
    run_raw(config, rows=folder / "rows", journal=Journal(folder / "journal"))
    seal(folder / "rows", "RawRow", task="raw")
    return folder / "rows"


def curate(rows: Path, folder: Path, **options: object) -> CurateReport:
    outputs = {name: folder / name for name in OUTPUTS}
    config = CurateConfig.model_validate(options)
    return run(config, rows=rows, **outputs, journal=Journal(folder / "journal"))


def digests(folder: Path) -> dict[str, str]:
    files = sorted(file for name in OUTPUTS for file in (folder / name).iterdir())
    return {
        f"{file.parent.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name not in ("manifest.json", "origin.json", "curves.jsonl")
    }


@pytest.fixture(scope="module")
def undisturbed(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of the outputs, made in one shard by one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert len(curate(raw, folder, workers=1).shards) == 1
    return digests(folder)


@pytest.mark.parametrize("size", [9_000, 60_000])
def test_cuts_change_nothing(
    raw: Path, undisturbed: dict[str, str], tmp_path: Path, size: int
) -> None:
    report = curate(raw, tmp_path, workers=1, shard_bytes=size)
    assert digests(tmp_path) == undisturbed
    assert len(report.shards) == len(cut(raw / "rows.jsonl", size)) > 2
    for shard in report.shards:
        flows = list(shard.values())
        assert all(flow.rows_in == flow.kept + flow.dropped for flow in flows)
        assert [flow.kept for flow in flows[:-1]] == [flow.rows_in for flow in flows[1:]]
    for name, kinds in report.filters.items():
        assert sum(shard[name].dropped for shard in report.shards) == sum(kinds.values())
    assert sum(shard["schema"].rows_in for shard in report.shards) == report.rows_in
    assert sum(shard["near_duplicate"].kept for shard in report.shards) == report.kept


def test_processes_change_nothing(raw: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    curate(raw, tmp_path, workers=2, shard_bytes=15_000)
    assert digests(tmp_path) == undisturbed


def test_a_killed_run_goes_on_where_it_was(
    raw: Path, undisturbed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"workers": 1, "shard_bytes": 20_000}
    whole = curate(raw, tmp_path / "whole", **options)
    journal = tmp_path / "half/journal/scratch/shards"

    def stop(journal: Journal, done: int, total: int, unit: str = "") -> None:
        if done == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "progress", stop)
        with pytest.raises(KeyboardInterrupt):
            curate(raw, tmp_path / "half", **options)
    finished = {path.name: path.stat().st_mtime_ns for path in journal.iterdir() if path.is_dir()}
    assert sorted(finished) == ["000000", "000001", "000002", "000003"]
    seen: list[dict[str, int]] = []

    def look(journal_: Journal, done: int, total: int, unit: str = "") -> None:
        seen.append({path.name: path.stat().st_mtime_ns for path in journal.iterdir()})

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "progress", look)
        assert curate(raw, tmp_path / "half", **options) == whole
    assert finished.items() <= seen[-1].items()
    assert digests(tmp_path / "half") == undisturbed


def test_shards_of_another_plan_are_not_used(raw: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    lines = (raw / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (other / "rows.jsonl").write_bytes(b"".join(lines[:-50]))
    curate(other, tmp_path / "a")
    left = tmp_path / "b/journal/scratch/shards"
    left.mkdir(parents=True)
    (left / "plan.json").write_text("{}", encoding="utf-8")
    (left / "000000").mkdir()
    curate(other, tmp_path / "b")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def command(raw: Path, folder: Path) -> list[str]:
    ports = [part for name in OUTPUTS for part in (f"--{name}", str(folder / name))]
    shared = ["--store", str(folder / "store"), "--tracking", "off", "--shard-bytes", "9000"]
    start = [sys.executable, "-m", "posttrain.cli", "curate", "--rows", str(raw)]
    return [*start, *ports, *shared, "--run-folder", str(folder / "run"), "--workers", "2"]


@pytest.mark.slow
def test_ten_kills_change_nothing(raw: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    rng = random.Random(0)
    shards = len(cut(raw / "rows.jsonl", 9000))
    left: list[int] = []
    for trial in range(10):
        folder = tmp_path / str(trial)
        argv = command(raw, folder)
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Moments by what is done, not by the clock: another test may slow this one down.
        moment = rng.randrange(shards)
        while child.poll() is None and finished(folder) < moment:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.02))
        child.send_signal(signal.SIGKILL)
        child.wait()
        left.append(finished(folder))
        subprocess.run(argv, check=True, capture_output=True)
        assert digests(folder) == undisturbed
    assert any(0 < count < shards for count in left), left


def finished(folder: Path) -> int:
    """How many shards a stage at work has finished."""
    return len([*folder.glob("store/work/*/scratch/shards/0*")])


def test_a_full_disk_is_told_and_finished_shards_stay(
    raw: Path, seal: Callable[..., Manifest], tmp_path: Path
) -> None:
    lines = (raw / "rows.jsonl").read_bytes().splitlines(keepends=True)
    small, large = (json.loads(line) for line in lines[:2])
    large["prompt"] = "word " * 100_000
    folder = tmp_path / "in"
    folder.mkdir()
    rows = "".join(json.dumps(row) + "\n" for row in (small, large))
    (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
    seal(folder, "RawRow", task="raw")
    limit = f"import resource; resource.setrlimit({resource.RLIMIT_FSIZE}, (300_000, 300_000))"
    argv = command(folder, tmp_path)[3:]
    argv += ["--filters", "[near_duplicate]", "--shard-bytes", "100", "--workers", "1"]
    script = f"{limit}\nfrom posttrain.cli import main\nraise SystemExit(main({argv!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 75, done.stderr
    assert "disk full" in done.stderr
    (shards,) = (tmp_path / "store/work").glob("*/scratch/shards")
    assert sorted(path.name for path in shards.iterdir()) == ["000000", "plan.json"]


def rows_of(tmp_path: Path, *lines: bytes) -> Path:
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines))
    return tmp_path


GOOD = b'{"id":"a","source":"s","task":"text","prompt":"Why?","split":"train"}'


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b'{"id":"b"', "Invalid JSON"),
        (b"", "Invalid JSON"),
        (b"[1]", "bad RawRow row"),
        (GOOD.replace(b'"Why?"', b"7"), "`prompt`"),
        (GOOD.replace(b'"Why?"', b"null"), "`prompt`"),
        (GOOD.replace(b'"Why?"', b'"\xff"'), "bad RawRow row"),
        (GOOD.replace(b'"Why?"', b'"\\ud800"'), "bad RawRow row"),
        (GOOD.replace(b'"train"', b'"dev"'), "`split`"),
        (GOOD.replace(b"{", b'{"difficulty":NaN,'), "`difficulty`"),
        (GOOD.replace(b"{", b'{"difficulty":1.5,'), "`difficulty`"),
        (GOOD.replace(b"{", b'{"extra":1,'), "`extra`"),
        (GOOD.replace(b"{", b'{"extra":' + b"[" * 100_000), "Invalid JSON"),
        (GOOD.replace(b"Why?", b"a" * MAX_ROW_BYTES), "row too long"),
        (b"a" * (3 * MAX_ROW_BYTES), "row too long"),
    ],
    ids=[
        "cut", "blank", "list", "number", "null", "utf8", "surrogate", "split", "nan", "float",
        "column", "bomb", "long", "endless",
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, bad: bytes, says: str) -> None:
    folder = rows_of(tmp_path, *[GOOD] * 300, bad, GOOD, b"")
    shards = cut(folder / "rows.jsonl", 8000)
    with pytest.raises(DataError, match=f"(?s){says}.*rows.jsonl:301"):
        list(each(partial(read, folder), shards, workers=1))


def test_an_unusual_row_is_read_as_it_is_elsewhere(tmp_path: Path) -> None:
    odd = (
        GOOD.replace(b'"split":"train"', b'"difficulty":"3"'),
        GOOD.replace(b"}", b',"answer":null,"prompt":"Because?"}'),
        GOOD.replace(b"Why?", b"\\u0000\\u00e9\xc3\xa9\\n"),
    )
    folder = rows_of(tmp_path, GOOD, *odd)
    (shard,) = cut(folder / "rows.jsonl", 8000)
    assert list(read(folder, shard).rows()) == list(read_rows(folder, RawRow))


def test_no_rows_are_no_shards(tmp_path: Path) -> None:
    assert cut(rows_of(tmp_path) / "rows.jsonl", 100) == []
    with pytest.raises(DataError, match="no row was kept"):
        curate(tmp_path, tmp_path / "out")


def number(shard: tuple[int, int, int]) -> int:
    if shard[0] == 3:
        raise DataError()
    return shard[0]


def test_a_fault_in_a_process_is_the_fault(tmp_path: Path) -> None:
    shards = cut(rows_of(tmp_path, *[GOOD] * 12) / "rows.jsonl", 1)
    assert list(each(number, shards[4:], workers=2)) == [4, 5, 6, 7, 8, 9, 10, 11]
    with pytest.raises(DataError):
        list(each(number, shards, workers=2))
