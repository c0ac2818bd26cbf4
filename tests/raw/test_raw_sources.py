"""Sources: real files and people's files become rows; bad input is one clear message."""

import json
import os
from pathlib import Path

import pytest

from posttrain.artifacts import file_digest, read_rows
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.raw.sources import SOURCES, Skipped
from posttrain.raw.sources.math_files import math_files, number
from posttrain.raw.sources.preference_files import hh_rlhf, pandalm
from posttrain.raw.sources.source import Line
from posttrain.raw.stage import RawConfig, run, still_holds
from posttrain.records import RawRow
from posttrain.tasks import split_of

DATA = Path(os.environ.get("POSTTRAIN_DATA", Path(__file__).parents[3] / "shared/data"))
realdata = pytest.mark.realdata
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")


def config(*sources: dict[str, object]) -> RawConfig:
    return RawConfig.model_validate({"sources": list(sources)})


def jsonl(path: Path) -> dict[str, object]:
    return {"name": "jsonl", "paths": [str(path)]}


def test_jsonl_computes_ids_and_keeps_given_fields(tmp_path: Path, journal: Journal) -> None:
    lines = [
        {"task": "number", "prompt": "1 + 1?", "answer": "2"},
        {"id": "mine", "source": "me", "task": "number", "prompt": "2 + 2?", "response": "#### 4"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    report = run(config(jsonl(file)), rows=tmp_path / "out", journal=journal)
    first, second = read_rows(tmp_path / "out", RawRow)
    assert first == RawRow.of(source="jsonl/rows", task="number", prompt="1 + 1?", answer="2")
    assert (second.id, second.source, second.kind) == ("mine", "me", "demonstrations")
    assert report.kinds == {"demonstrations": 1, "prompts": 1}
    assert report.rows == 2


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"", "", "empty file"),
        (b"\n \n", "", "empty file"),
        (b'{"task": "number", "prompt": "a"}\n{"task": ', ":2", "malformed JSON"),
        (b'{"task": "number", "prompt": "\xff"}\n', ":1", "invalid UTF-8"),
        (b'["a"]\n', ":1", "not a JSON object"),
        (b'{"task": "number"}\n', ":1", "missing column `prompt`"),
        (b'{"task": "number", "prompt": "a", "anser": "2"}\n', ":1", "bad `anser`"),
        (b'{"task": "number", "prompt": 7}\n', ":1", "bad `prompt`"),
        (b'{"task": "number", "prompt": "\\ud800"}\n', ":1", "invalid UTF-8"),
        (b"[" * 100_000 + b"\n", ":1", "malformed JSON"),
        (b'{"prompt": "' + b"a" * 50_000_000 + b'"}\n', ":1", "row too long"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value or "file",
)
def test_bad_jsonl_names_file_and_line(
    tmp_path: Path, journal: Journal, content: bytes, line: str, says: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        run(config(jsonl(file)), rows=tmp_path / "out", journal=journal)
    (fault,) = caught.value.faults
    assert says in fault.what
    assert fault.where == f"{file}{line}"
    assert caught.value.exit_code == 3


def test_all_bad_lines_are_told_at_once(tmp_path: Path, journal: Journal) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"task": "number"}\n' * 3, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        run(config(jsonl(file)), rows=tmp_path / "out", journal=journal)
    assert [fault.where for fault in caught.value.faults] == [f"{file}:{n}" for n in (1, 2, 3)]


def test_missing_files_are_named_at_once(tmp_path: Path, journal: Journal) -> None:
    sources = {"name": "math_files", "folder": str(tmp_path), "sets": ["svamp", "gsm8k"]}
    with pytest.raises(DataError) as caught:
        run(config(sources), rows=tmp_path / "out", journal=journal)
    assert len(caught.value.faults) == 3
    assert all("POSTTRAIN_DATA" in fault.mend for fault in caught.value.faults)


def test_sources_that_give_nothing_are_an_error(tmp_path: Path, journal: Journal) -> None:
    counts = dict.fromkeys(("demonstrations", "preferences", "prompts", "evaluation"), 0)
    with pytest.raises(DataError, match="no rows"):
        run(config({"name": "procedural", **counts}), rows=tmp_path / "out", journal=journal)


def test_a_changed_file_makes_the_stored_rows_stale(tmp_path: Path, journal: Journal) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"task": "number", "prompt": "a"}\n', encoding="utf-8")
    made = config(jsonl(file))
    run(made, rows=tmp_path / "out", journal=journal)
    assert still_holds({"rows": tmp_path / "out"}, made) is None
    file.write_text('{"task": "number", "prompt": "b"}\n', encoding="utf-8")
    assert still_holds({"rows": tmp_path / "out"}, made) == (
        "a file that a source reads has changed"
    )


def test_gsm8k_rows_lose_annotations_and_keep_the_split(tmp_path: Path) -> None:
    row = {
        "question": "How many?",
        "answer": "3*4 = <<3*4=12>>12 eggs, <<1000+12=1012>>\n#### 1,012",
    }
    for name in ("train", "test"):
        file = tmp_path / f"gsm8k/{name}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    rows = list(math_files(0, folder=str(tmp_path), sets=("gsm8k",)))
    kinds = [row.kind for row in rows if isinstance(row, RawRow)]
    assert kinds == ["prompts", "demonstrations", "evaluation"]
    assert all(isinstance(row, RawRow) and row.answer == "1012" for row in rows)
    assert isinstance(rows[1], RawRow)
    assert rows[1].response == "3*4 = 12 eggs, \n#### 1,012"


def test_numbers_are_written_as_people_write_them() -> None:
    assert [number(value, "x") for value in (43.0, 39, 0.5, -2.0)] == ["43", "39", "0.5", "-2"]
    with pytest.raises(DataError, match="not a number"):
        number("43", "x")


@pytest.mark.parametrize(
    ("votes", "becomes"),
    [
        ((1, 1, 2), ("first", "second")),
        ((0, 2, 2), ("second", "first")),
        ((0, 0, 1), "a tie by majority"),
        ((0, 1, 2), "no majority of the annotators"),
    ],
)
def test_pandalm_follows_the_majority(votes: tuple[int, ...], becomes: object) -> None:
    values = {"instruction": "Do.", "input": "", "response1": "first", "response2": "second"}
    values |= {f"annotator{number}": vote for number, vote in enumerate(votes, 1)}  # type: ignore[misc]
    row = pandalm(Line("here", values))
    told = row.reason if isinstance(row, Skipped) else (row.chosen, row.rejected)
    assert told == becomes
    assert isinstance(row, Skipped) or row.prompt == "Do."


def test_hh_rlhf_splits_at_the_last_shared_turn() -> None:
    history = "\n\nHuman: hi\n\nAssistant: Hello!\n\nHuman: bye\n\nAssistant:"
    row = hh_rlhf(Line("here", {"chosen": f"{history} Bye!", "rejected": f"{history} Be off!"}))
    assert isinstance(row, RawRow)
    assert row.prompt == history.strip()
    assert (row.chosen, row.rejected) == ("Bye!", "Be off!")


def test_hub_reads_a_local_dataset_folder(tmp_path: Path, journal: Journal) -> None:
    lines = [{"question": f"{n} + 1?", "final": n + 1, "level": 2} for n in range(3)]
    (tmp_path / "upstream").mkdir()
    file = tmp_path / "upstream/train.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    columns = {"prompt": "question", "answer": "final", "difficulty": "level"}
    source = {"name": "hub", "dataset": str(file.parent), "task": "number", "columns": columns}
    run(config(source | {"limit": 2}), rows=tmp_path / "out", journal=journal)
    rows = list(read_rows(tmp_path / "out", RawRow))
    assert [(row.prompt, row.answer, row.difficulty) for row in rows] == [
        ("0 + 1?", "1", 2),
        ("1 + 1?", "2", 2),
    ]


def test_hub_names_wrong_columns_before_it_reads() -> None:
    plugin = Plugin(
        name="hub",
        options={"dataset": "nowhere/nothing", "task": "number", "columns": {"promt": "question"}},
    )
    with pytest.raises(ConfigError) as caught:
        list(build(SOURCES, plugin, "raw.sources")(0))
    assert "did you mean `prompt`" in caught.value.faults[0].mend
    assert len(caught.value.faults) == 2


@realdata
@needs_data
def test_real_math_files_become_rows(tmp_path: Path, journal: Journal) -> None:
    report = run(
        config({"name": "math_files", "folder": str(DATA)}), rows=tmp_path / "out", journal=journal
    )
    assert report.sources["gsm8k"] == 2 * 7473 + 1319
    assert report.sources["svamp"] == 697
    rows = list(read_rows(tmp_path / "out", RawRow))
    mawps = [row for row in rows if row.source.startswith("mawps")]
    assert len(mawps) == 395 + 600 + 508 + 562
    assert all(row.split == split_of(row.prompt) for row in mawps)
    assert not any("<<" in (row.response or "") for row in rows)


@realdata
@needs_data
def test_real_preferences_become_pairs(tmp_path: Path, journal: Journal) -> None:
    sets = ["pandalm", "hh_rlhf_harmless"]
    source = {"name": "preference_files", "folder": str(DATA), "sets": sets}
    report = run(config(source), rows=tmp_path / "out", journal=journal)
    assert report.sources["pandalm"] + sum(report.skipped.values()) == 696
    assert report.sources["hh_rlhf_harmless"] == 1792
    assert report.kinds == {"preferences": report.rows}


def test_bad_rows_may_be_skipped_and_counted(tmp_path: Path, journal: Journal) -> None:
    good = b'{"task": "number", "prompt": "a"}\n'
    lines = (
        good,
        b'{"task": "number"}\n',
        b'{"task": "number", "prompt": "\xff"}\n',
        b'{"prompt": ' + b"[" * 100_000 + b"\n",
        b'{"prompt": "' + b"a" * 20_000_000 + b'"}\n',
        b'{"task": "number", "prompt": 7}\n',
        b'{"task": "number", "prompt": "b", "difficulty": NaN}\n',
        b'{"task": "number", "prompt": "b", "agreement": 3}\n',
        good.replace(b'"a"', b'"c"'),
    )
    file, empty = tmp_path / "rows.jsonl", tmp_path / "none.jsonl"
    file.write_bytes(b"".join(lines))
    empty.write_bytes(b"\n")
    source = {"name": "jsonl", "paths": [str(file), str(empty)], "bad_rows": "skip"}
    report = run(config(source), rows=tmp_path / "out", journal=journal)
    assert [row.prompt for row in read_rows(tmp_path / "out", RawRow)] == ["a", "c"]
    assert report.skipped == {
        "jsonl/none: empty file": 1,
        "jsonl/rows: bad `agreement`": 1,
        "jsonl/rows: bad `difficulty`": 1,
        "jsonl/rows: bad `prompt`": 1,
        "jsonl/rows: invalid UTF-8": 1,
        "jsonl/rows: malformed JSON": 1,
        "jsonl/rows: missing column `prompt`": 1,
        "jsonl/rows: row too long": 1,
    }


def test_a_file_that_is_not_the_recorded_one_is_refused(tmp_path: Path, journal: Journal) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"task": "number", "prompt": "a"}\n', encoding="utf-8")
    recorded = jsonl(file) | {"sha256": {str(file): file_digest(file)}}
    assert run(config(recorded), rows=tmp_path / "out", journal=journal).rows == 1
    file.write_text('{"task": "number", "prompt": "b"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="a source has changed"):
        run(config(recorded), rows=tmp_path / "again", journal=journal)
    other = jsonl(file) | {"sha256": {"other.jsonl": ""}}
    with pytest.raises(ConfigError, match="digest of a file that is not read"):
        run(config(other), rows=tmp_path / "other", journal=journal)
