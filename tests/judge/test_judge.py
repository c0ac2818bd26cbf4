"""Bringing in a judge, or none, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import JUDGE, In, Manifest, read_manifest, verify
from posttrain.cli import main


@pytest.fixture
def folder(tmp_path: Path, seal: Callable[..., Manifest]) -> Path:
    path = tmp_path / "made/judge"
    (path / "parts").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "parts/panel.json").write_text(json.dumps({"passed": True}))
    (path / "curves.jsonl").write_text("{}\n")
    seal(path, "judge")
    return path


def bring(tmp_path: Path, *more: str) -> int:
    ports = ["--judge", str(tmp_path / "judge"), "--store", str(tmp_path / "store")]
    run = ["--run-folder", str(tmp_path / "run"), "--tracking", "off"]
    return main(["judge", *ports, *run, *more])


def test_a_judge_is_brought_in_whole(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(tmp_path, "--folder", str(folder)) == 0
    brought = verify(tmp_path / "judge", In(JUDGE))
    assert brought.digest == read_manifest(folder).digest
    assert (brought.report, brought.stage) == ({"brought": True, "files": 2}, "judge")
    assert bring(tmp_path, "--folder", str(folder)) == 0
    assert "judge: cached" in capsys.readouterr().err


def test_a_changed_folder_is_brought_in_again(
    folder: Path,
    tmp_path: Path,
    seal: Callable[..., Manifest],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bring(tmp_path, "--folder", str(folder))
    (folder / "config.json").write_text('{"a": 1}')
    assert bring(tmp_path, "--folder", str(folder)) == 3
    assert "damaged artifact" in capsys.readouterr().err
    seal(folder, "judge")
    assert bring(tmp_path, "--folder", str(folder)) == 0
    assert "judge: done" in capsys.readouterr().err


def test_without_a_folder_there_is_no_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(tmp_path) == 0
    assert verify(tmp_path / "judge", In(JUDGE)).files == {}
    assert bring(tmp_path, "--folder", str(tmp_path / "absent")) == 3
    assert "no such artifact" in capsys.readouterr().err
