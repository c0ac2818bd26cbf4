"""Recorded candidates: scored again from files, and equal to what is computed from the file."""

import json
import os
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.best_of_n.conftest import Seal, go, samples

from posttrain.artifacts import SCORES, In, read_rows, verify, write_rows
from posttrain.best_of_n.recorded import FILES
from posttrain.best_of_n.stage import BestOfNConfig, BestOfNReport, preflight, still_holds
from posttrain.cli import main
from posttrain.config import Plugin
from posttrain.errors import ConfigError, DataError
from posttrain.records import Sample

DATA = Path(os.environ.get("POSTTRAIN_DATA", Path(__file__).parents[3] / "shared/data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")


def rescored(root: Path, name: str, folder: Path, **more: object) -> BestOfNReport:
    recorded = {"name": name, "data_folder": str(folder)}
    options = {"recorded": recorded, "n_max": 16, "chunk": 16} | more
    return go(root, "scores", None, None, **options)


def published(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / FILES[name]).read_text("utf-8").splitlines()]


@pytest.mark.realdata
@needs_data
def test_best_of_8_equals_what_the_file_says(tmp_path: Path) -> None:
    """Mean, vote, judge and pass@8, each counted out of the file without our estimators."""
    report = rescored(tmp_path, "bon_math_cot", DATA)
    rows = published("bon_math_cot")
    mean = sum(sum(row["score"]) for row in rows) / sum(len(row["score"]) for row in rows)
    votes = 0.0
    judged = 0.0
    for row in rows:
        # `most_common` keeps the order of arrival among equals: the first seen wins.
        answer = Counter(row["pred"]).most_common(1)[0][0]
        votes += row["score"][row["pred"].index(answer)]
        scores = [score[0] for score in row["pred_score"]]
        best = [right for right, s in zip(row["score"], scores, strict=True) if s == max(scores)]
        judged += sum(best) / len(best)
    first, last = report.curve[0], report.curve[-1]
    assert (report.items, report.n_max, last["k"]) == (40, 8, 8)
    assert first["pass"] == first["judge"] == pytest.approx(mean, abs=1e-12)
    assert last["majority"] == pytest.approx(votes / len(rows), abs=1e-12)
    assert last["judge"] == pytest.approx(judged / len(rows), abs=1e-12)
    assert last["pass"] == sum(any(row["score"]) for row in rows) / len(rows)
    kept = list(read_rows(tmp_path / "scores", Sample))
    assert [row.judge for row in kept] == [s[0] for row in rows for s in row["pred_score"]]
    assert [row.response for row in kept] == [text for row in rows for text in row["response"]]


@pytest.mark.realdata
@needs_data
def test_pass_at_k_is_the_share_of_all_subsets(tmp_path: Path) -> None:
    report = rescored(tmp_path, "bon_math_cot", DATA)
    rows = published("bon_math_cot")
    for point in report.curve:
        subsets = [s for row in rows for s in combinations(row["score"], int(point["k"]))]
        assert point["pass"] == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@pytest.mark.realdata
@needs_data
def test_four_solutions_of_gsm8k(tmp_path: Path) -> None:
    report = rescored(tmp_path, "gsm8k_solutions", DATA, resamples=100)
    rows = published("gsm8k_solutions")
    told = [[v["is_correct"] for v in row.values() if isinstance(v, dict)] for row in rows]
    assert (report.items, report.n_max) == (len(rows), 4)
    assert report.curve[0]["pass"] == pytest.approx(sum(map(sum, told)) / sum(map(len, told)))
    assert report.curve[-1]["pass"] == sum(map(any, told)) / len(told)
    assert report.lacking == ["judge", "weighted_majority", "self_certainty"]
    assert report.tokens_per_solved is None
    plain = [row for row in read_rows(tmp_path / "scores", Sample) if row.answer.isdigit()]
    assert len(plain) > 2000
    assert all(row.correct == (row.prediction == row.answer) for row in plain)


def math_row(**changes: object) -> dict[str, object]:
    """A row in the form of the published file."""
    row = {
        "question": "1 + 1?", "gt": "2", "response": ["two", "", "3"],
        "score": [True, False, False], "pred": ["2", "", "3"], "pred_score": [[0.5], [9.0], [0.1]],
    }  # fmt: skip
    return row | changes


def record(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / FILES["bon_math_cot"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_bad_answers_of_a_record_are_counted(tmp_path: Path) -> None:
    """An empty answer, one of half a million characters, a NaN score and one that is no number."""
    rows = (
        math_row(),
        math_row(question="2 + 1?", response=["x" * 500_000, "a", "b"]),
        math_row(question="3 + 1?", pred_score=[[float("nan")], ["high"], [1.0]]),
    )
    report = rescored(tmp_path, "bon_math_cot", record(tmp_path / "data", *rows))
    counts = {key: value for key, value in report.outcomes.items() if value}
    assert counts == {"empty": 2, "huge": 1, "no_prediction": 3, "judge_not_finite": 2}
    assert report.curve[-1]["judge"] == 0.0
    assert [row.judge for row in read_rows(tmp_path / "scores", Sample)][6:] == [None, None, 1.0]


def test_malformed_records_are_refused_with_their_line(tmp_path: Path) -> None:
    short = record(tmp_path / "short", math_row(), math_row(question="?", pred=["2"]))
    with pytest.raises(DataError, match=r"math_cot_100\.jsonl:2"):
        rescored(tmp_path, "bon_math_cot", short)
    (tmp_path / "short" / FILES["bon_math_cot"]).write_text("{")
    with pytest.raises(DataError, match="malformed JSON"):
        rescored(tmp_path, "bon_math_cot", short)


def test_a_record_that_is_absent_or_changed_is_told(tmp_path: Path) -> None:
    place = {"data_folder": str(tmp_path / "data")}
    config = BestOfNConfig(recorded=Plugin(name="bon_math_cot", options=place))
    assert [fault.what for fault in preflight(config)] == ["no such data file"]
    rescored(tmp_path, "bon_math_cot", record(tmp_path / "data", math_row()))
    assert list(preflight(config)) == []
    assert still_holds({"scores": tmp_path / "scores"}, config) is None
    record(tmp_path / "data", math_row(gt="3"))
    assert still_holds({"scores": tmp_path / "scores"}, config) == "the recorded file has changed"
    assert list(preflight(BestOfNConfig())) == []


def test_the_command_line_runs_again_when_the_record_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record(tmp_path / "data", math_row())
    line = ["best_of_n", "--recorded", f"{{name: bon_math_cot, data_folder: {folder}}}"]
    line += ["--selectors", "[verifier, {name: weighted_majority, weights: sum}]"]
    line += ["--store", str(tmp_path / "store"), "--run-folder", str(tmp_path / "run")]
    line += ["--scores", str(tmp_path / "scores"), "--tracking", "off"]
    for change, told in (({}, "done"), ({}, "cached"), ({"gt": "3"}, "done")):
        record(folder, math_row(**change))
        assert main(line) == 0
        assert f"best_of_n: {told}" in capsys.readouterr().err
    assert verify(tmp_path / "scores", In(SCORES)).report["items"] == 1


def test_an_earlier_run_is_scored_by_another_judge(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path, seal: Seal
) -> None:
    """Drawn without a judge, then judged: as if it had been judged at once, but for the seconds."""
    go(tmp_path, "drawn", tiny_policy, evaluation)
    at_once = go(tmp_path, "at_once", tiny_policy, evaluation, judge=judge)
    later = go(tmp_path, "later", None, None, candidates=tmp_path / "drawn", judge=judge)
    rows, expected = (list(read_rows(tmp_path / name, Sample)) for name in ("later", "at_once"))
    assert [row.judge for row in rows] == pytest.approx([row.judge for row in expected], abs=1e-4)
    assert later.curve == at_once.curve
    assert (later.generation_seconds, at_once.generation_seconds > 0) == (0.0, True)
    assert later.seconds_per_solved["pass"] == {"1": None, "2": None, "4": None}


def test_every_item_needs_as_many_candidates(tmp_path: Path) -> None:
    rows = samples([[1, 0, 0], [0, 1, 1]], [[1.0, 2, 3], [3.0, 2, 1]])
    write_rows(tmp_path / "candidates", rows[:-1])
    with pytest.raises(DataError, match="set n_max to at most 2"):
        go(tmp_path, "scores", None, None, candidates=tmp_path / "candidates")
    report = go(tmp_path, "scores", None, None, candidates=tmp_path / "candidates", n_max=2)
    assert report.curve[-1]["judge"] == 0.0
    assert report.curve[-1]["pass"] == 1.0
    write_rows(tmp_path / "none", [])
    with pytest.raises(DataError, match="no candidates"):
        go(tmp_path, "scores", None, None, candidates=tmp_path / "none")


def test_samples_come_from_one_place(tmp_path: Path, evaluation: Path) -> None:
    for policy, prompts, more in (
        (None, None, {}),
        (tmp_path, None, {}),
        (None, evaluation, {}),
        (tmp_path, evaluation, {"candidates": tmp_path}),
        (None, None, {"candidates": tmp_path, "recorded": {"name": "bon_math_cot"}}),
    ):
        with pytest.raises(ConfigError, match="must come from one place"):
            go(tmp_path, "scores", policy, prompts, **more)
