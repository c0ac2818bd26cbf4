"""Artifacts: complete or absent, undamaged or refused, of the right kind or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import (
    MAX_ROW_BYTES,
    In,
    publish,
    read_manifest,
    read_rows,
    verify,
    write_json,
    write_rows,
)
from posttrain.errors import DataError
from posttrain.records import Demonstration, Prompt


def prompts(count: int = 3) -> list[Prompt]:
    return [
        Prompt(
            id=f"p{i}", text=f"What is {i} + 1?", answer=str(i + 1), task="arithmetic", source="t"
        )
        for i in range(count)
    ]


@pytest.fixture
def sealed(tmp_path: Path, seal: Callable[[Path, str], object]) -> Path:
    folder = tmp_path / "prompts"
    write_rows(folder, prompts())
    seal(folder, "Prompt")
    return folder


def test_rows_round_trip(sealed: Path) -> None:
    assert list(read_rows(sealed, Prompt)) == prompts()
    assert verify(sealed, In(Prompt)).rows == 3


def test_wrong_kind_is_refused(sealed: Path) -> None:
    with pytest.raises(DataError, match="a folder of Demonstration is wanted"):
        verify(sealed, In(Demonstration))


def test_no_manifest_means_half_written(sealed: Path) -> None:
    (sealed / "manifest.json").unlink()
    with pytest.raises(DataError, match="half-written"):
        verify(sealed, In(Prompt))


@pytest.mark.parametrize("harm", ["flip", "truncate", "add", "remove"])
def test_damage_is_found(sealed: Path, harm: str) -> None:
    rows = sealed / "rows.jsonl"
    data = rows.read_bytes()
    if harm == "flip":
        rows.write_bytes(data.replace(b"+ 1", b"+ 2", 1))
    elif harm == "truncate":
        rows.write_bytes(data[:-5])
    elif harm == "add":
        (sealed / "more.txt").write_text("x")
    else:
        rows.unlink()
    with pytest.raises(DataError, match="damaged artifact"):
        verify(sealed, In(Prompt))


def test_a_torn_manifest_is_refused(sealed: Path) -> None:
    path = sealed / "manifest.json"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match="unreadable manifest"):
        verify(sealed, In(Prompt))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{not json", "Prompt row"),
        (b'{"id": "a"}', "text"),
        (b"\xff\xfe\x00", "Prompt row"),
        (b'{"id": 1, "text": "", "answer": "", "task": "", "source": ""}', "`id`"),
        (b"x" * (MAX_ROW_BYTES + 10), "row too long"),
        (b"", "Prompt row"),
    ],
    ids=["json", "missing", "utf8", "type", "long", "blank"],
)
def test_bad_rows_name_their_line(tmp_path: Path, line: bytes, told: str) -> None:
    write_rows(tmp_path, prompts(1))
    with (tmp_path / "rows.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DataError, match=told) as caught:
        list(read_rows(tmp_path, Prompt))
    assert "rows.jsonl:2" in str(caught.value)


def test_publish_replaces_whole_folders(tmp_path: Path, sealed: Path) -> None:
    target = tmp_path / "out" / "prompts"
    target.mkdir(parents=True)
    (target / "old.txt").write_text("old")
    publish(sealed, target, read_manifest(sealed))
    assert verify(target, In(Prompt)).rows == 3
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["prompts"]


def test_json_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
