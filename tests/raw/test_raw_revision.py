"""A revision names the bytes of the rows; whoever asks for one gets that one or nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import MANIFEST, digest_of, file_digest, read_manifest
from posttrain.cli import main


def raw(folder: Path, *words: str) -> int:
    """Read `rows.jsonl` of a folder by the command line."""
    sources = json.dumps([{"name": "jsonl", "paths": [str(folder / "rows.jsonl")]}])
    out = ["--rows", str(folder / "out"), "--store", str(folder / "store"), "--sources", sources]
    run = ["--run-folder", str(folder / "run"), "--tracking", "off"]
    return main(["raw", *out, *run, *words])


def write(folder: Path, answer: int) -> None:
    row = {"task": "number", "prompt": "1 + 1?", "answer": str(answer)}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")


def test_rows_of_another_revision_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 2)
    assert raw(tmp_path) == 0
    revision = read_manifest(tmp_path / "out").digest
    assert raw(tmp_path, "--revision", revision[:12]) == 0
    assert raw(tmp_path, "--revision", revision) == 0
    assert read_manifest(tmp_path / "out").digest == revision

    write(tmp_path, 3)
    assert raw(tmp_path, "--revision", revision) == 3
    assert "data of another revision" in capsys.readouterr().err
    assert raw(tmp_path, "--revision", "") == 0
    assert read_manifest(tmp_path / "out").digest != revision


def test_a_revision_of_digits_is_a_text(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path, 2)
    assert raw(tmp_path, "--revision", "00123") == 3
    assert "`00123` is wanted" in capsys.readouterr().err


def test_one_digest_tells_of_all_outputs(tmp_path: Path) -> None:
    """The same for the same work, wherever it was done; another for other rows."""
    digests = []
    for name, answer in (("a", 2), ("b", 2), ("c", 3)):
        folder = tmp_path / name / "here"
        folder.mkdir(parents=True)
        write(folder, answer)
        shutil.move(folder, tmp_path / "same")
        assert raw(tmp_path / "same", "--digest", str(tmp_path / name / "digest")) == 0
        manifest = tmp_path / "same/out" / MANIFEST
        digests.append((tmp_path / name / "digest").read_text())
        assert digests[-1] == digest_of({"rows": file_digest(manifest)})
        shutil.rmtree(tmp_path / "same")
    assert digests[0] == digests[1] != digests[2]
