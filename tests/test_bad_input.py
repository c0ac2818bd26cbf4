"""Bad input: one clear message, the documented exit code, nothing lost, nothing half-written."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.cli import main

GOOD = '{"prompt": "1 + 1?", "task": "arithmetic", "answer": "2"}\n'


def raw(tmp_path: Path, files: list[Path], **extra: str) -> list[str]:
    options = {
        "--rows": str(tmp_path / "rows"),
        "--store": str(tmp_path / "store"),
        "--run-folder": str(tmp_path / "run"),
        "--tracking": "off",
        "--sources": json.dumps([{"name": "jsonl", "paths": [str(f) for f in files]}]),
    } | extra
    return ["raw", *(part for pair in options.items() for part in pair)]


def curate(tmp_path: Path, rows: Path) -> list[str]:
    ports = ("prompts", "demonstrations", "preferences", "evaluation")
    outputs = [part for port in ports for part in (f"--{port}", str(tmp_path / port))]
    shared = ["--store", str(tmp_path / "store"), "--run-folder", str(tmp_path / "run")]
    return ["curate", "--rows", str(rows), *outputs, *shared, "--tracking", "off"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "in.jsonl"),
        (b'{"prompt": \n', "in.jsonl:1"),
        (GOOD.encode() + b"\xff\xfe{}\n", "in.jsonl:2"),
        (b'{"task": "arithmetic"}\n', "missing column `prompt`"),
        (b'{"prompt": 3, "task": "arithmetic"}\n', "`prompt`"),
        (b"[1, 2]\n", "in.jsonl:1"),
        (b'{"prompt": "' + b"x" * (50 * 2**20) + b'"}\n', "in.jsonl:1"),
    ],
    ids=["empty", "json", "utf8", "column", "type", "list", "50MB"],
)
def test_bad_rows_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, told: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    assert main(raw(tmp_path, [path])) == 3
    error = capsys.readouterr().err
    assert told in error
    assert "mend:" in error
    assert len(error) < 4000
    assert not (tmp_path / "rows").exists()


def test_a_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(raw(tmp_path, [tmp_path / "none.jsonl"])) == 3
    assert "none.jsonl" in capsys.readouterr().err


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD)
    assert main(raw(tmp_path, [path])) == 0
    return tmp_path / "rows"


@pytest.mark.parametrize("harm", ["corrupt", "half-written", "wrong record", "absent"])
def test_bad_artifacts_exit_3(
    tmp_path: Path, rows: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if harm == "corrupt":
        target = rows / "rows.jsonl"
        text = target.read_text().replace("1 + 1", "1 + 2")
        target.unlink()
        target.write_text(text)
    elif harm == "half-written":
        (rows / "manifest.json").unlink()
    elif harm == "absent":
        shutil.rmtree(rows)
    argv = curate(tmp_path, rows)
    if harm == "wrong record":
        assert main(argv) == 0
        argv = curate(tmp_path / "again", tmp_path / "prompts")
    assert main(argv) == 3
    told = {"corrupt": "damaged", "half-written": "half-written", "absent": "not there"}
    assert told.get(harm, "a folder of RawRow is wanted") in capsys.readouterr().err


def in_small_disk(
    tmp_path: Path, options: str, command: list[str]
) -> "subprocess.CompletedProcess[str]":
    """Run a command with `tmp_path/disk` mounted as a file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    script = (
        f"mount -t tmpfs -o {options} none {shlex.quote(str(disk))} && exec {shlex.join(command)}"
    )
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rm", "true"], check=False).returncode:
        pytest.skip("needs unshare and user namespaces to mount a small disk")
    return subprocess.run(
        [unshare, "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def command(argv: list[str]) -> list[str]:
    return [sys.executable, "-c", "from posttrain.cli import entry; entry()", *argv]


def test_a_full_disk_exits_75(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD * 20_000)
    argv = raw(tmp_path, [path], **{"--store": str(tmp_path / "disk" / "store")})
    done = in_small_disk(tmp_path, "size=512k", command(argv))
    assert done.returncode == 75, done.stderr
    assert "disk full" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "rows").exists()


def test_a_read_only_output_exits_2(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD)
    argv = raw(tmp_path, [path], **{"--rows": str(tmp_path / "disk" / "rows")})
    done = in_small_disk(tmp_path, "ro", command(argv))
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert not (tmp_path / "store" / "work").exists()


def test_an_unreachable_mlflow_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD)
    assert main(raw(tmp_path, [path], **{"--tracking": "on"})) == 0
    told = capsys.readouterr().err
    assert "cannot be reached" in told
    assert "posttrain track" in told
    assert (tmp_path / "run" / "stages" / "raw.json").is_file()


def test_check_tells_every_problem_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "bad.yaml"
    recipe.write_text("rl: {advantage: grppo, stepss: 3}\nsft: {epochs: -1}\n")
    assert main(["check", "--recipe", str(recipe), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in ("grppo", "did you mean `grpo`", "stepss", "sft.epochs"))
    assert not (tmp_path / "out").exists()
