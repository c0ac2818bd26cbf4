"""Best-of-N: the curve on known samples, and the stage on a tiny policy and judge."""

import json
import shutil
from math import comb
from pathlib import Path

import pytest
from tests.best_of_n.conftest import go, samples, write_panel

from posttrain.artifacts import content_files, read_rows, write_rows
from posttrain.best_of_n.curve import curve_of
from posttrain.best_of_n.selectors import SELECTORS
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.records import Prompt, Sample, Score


def test_curve_by_hand() -> None:
    """One item solved by 2 of 4, one by none. The judge likes a right sample best."""
    rows = samples([[1, 1, 0, 0], [0, 0, 0, 0]], [[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    curve = curve_of(rows, 4, 200, seed=0)
    first, second, last = curve.points()
    assert [first["k"], second["k"], last["k"]] == [1, 2, 4]
    for method in ("pass", "majority", "judge"):
        assert first[method] == pytest.approx(0.25)
    assert second["pass"] == pytest.approx((1 - 1 / comb(4, 2)) / 2)
    assert second["judge"] == pytest.approx(3 / 6 / 2)
    assert last["pass"] == last["majority"] == last["judge"] == pytest.approx(0.5)
    assert last["tokens_per_solved"] == pytest.approx(4 * 10 / 0.5)
    assert curve.judge_accuracy == pytest.approx(2 / 4)
    assert curve.gains["judge"].value == pytest.approx(0.25)


def test_without_a_judge_the_vote_chooses_and_nothing_solved_costs_nothing_known() -> None:
    curve = curve_of(samples([[0, 0], [0, 0]]), 2, 200, seed=0)
    assert curve.chooser == "majority"
    assert "judge" not in curve.points()[0]
    assert curve.points()[-1]["tokens_per_solved"] is None


def test_every_method_is_the_same_at_one_and_orders_at_n() -> None:
    """An oracle is never worse than a judge; a judge that knows is as good as an oracle."""
    right = [[int((i * 7 + n * 3) % 5 < 2) for n in range(8)] for i in range(40)]
    curve = curve_of(samples(right, [[float(r) for r in row] for row in right]), 8, 500, seed=1)
    for point in curve.points():
        assert point["pass"] == pytest.approx(point["judge"])
        assert point["pass"] >= point["majority"] - 1e-9
    start = curve.points()[0]
    assert start["pass"] == pytest.approx(start["majority"]) == pytest.approx(start["judge"])
    assert curve.judge_accuracy == 1.0
    for method, gain in curve.gains.items():
        assert gain.low > 0, method


def test_curve_without_anything_to_choose_by_is_empty() -> None:
    curve = curve_of(samples([[1, 0]]), 2, 200, 0, {"judge": SELECTORS["judge"]})
    assert curve.methods == {}
    assert curve.lacking == ["judge"]
    assert [point["tokens_per_solved"] for point in curve.points()] == [None, None]


def test_rows_scores_and_report_agree(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path
) -> None:
    report = go(tmp_path, "scores", tiny_policy, evaluation, judge=judge)
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert (report.items, report.samples, len(rows)) == (5, 20, 20)
    assert report.tokens == sum(row.tokens for row in rows)
    assert len({row.judge for row in rows}) > 1
    table = {s.metric: s for s in read_rows(tmp_path / "scores", Score, "scores.jsonl")}
    methods = ("pass", "majority", "judge", "weighted_majority", "self_certainty")
    assert set(table) == {f"{m}@{k}" for m in methods for k in (1, 2, 4)}
    assert set(report.gains) == set(methods)
    assert report.lacking == []
    assert table["pass@1"].value == pytest.approx(sum(row.correct for row in rows) / 20)
    assert report.curve[-1]["judge"] == table["judge@4"].value
    assert table["judge@4"].n == 5


def test_cost_per_solved_item_by_hand(tiny_policy: Path, evaluation: Path, tmp_path: Path) -> None:
    """k samples of an item, over the share of items solved; nothing solved has no cost.

    Most random policies solve nothing, so the curve of known samples stands beside the stage.
    """
    report = go(tmp_path, "scores", tiny_policy, evaluation)
    each = report.generation_seconds / report.samples
    assert each > 0
    for point in report.curve:
        share, k = point["majority"], int(point["k"])
        seconds = report.seconds_per_solved["majority"][str(k)]
        assert seconds == (pytest.approx(k * each / share) if share else None)
    curve = curve_of(samples([[1, 1, 0, 0], [0, 0, 0, 0]]), 4, 200, seed=0)
    assert curve.per_solved(2.0)["pass"] == pytest.approx([2 / 0.25, 4 / (5 / 12), 8 / 0.5])
    assert curve.points()[1]["pass_tokens_per_solved"] == pytest.approx(20 / (5 / 12))


def test_a_killed_run_ends_like_an_unbroken_one(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path
) -> None:
    whole, half = Journal(tmp_path / "whole"), Journal(tmp_path / "half")
    go(tmp_path, "a", tiny_policy, evaluation, judge=judge, journal=whole)
    done = sorted(path.name for path in whole.scratch.iterdir())
    assert len(done) == 6
    for name in ("samples-000002.jsonl", "toll-000002.json"):
        shutil.copy(whole.scratch / name, half.scratch / name)
    told = json.loads((half.scratch / "toll-000002.json").read_text())
    told["seconds"] += 1000
    (half.scratch / "toll-000002.json").write_text(json.dumps(told))
    (half.scratch / "samples-000000.jsonl.partial").write_text("torn")
    report = go(tmp_path, "b", tiny_policy, evaluation, judge=judge, journal=half)
    assert report.generation_seconds > 1000
    assert content_files(tmp_path / "a") == content_files(tmp_path / "b")


def test_without_a_judge(tiny_policy: Path, evaluation: Path, tmp_path: Path) -> None:
    report = go(tmp_path, "scores", tiny_policy, evaluation, limit=3, n_max=3)
    assert (report.items, report.samples) == (3, 9)
    assert report.judge_gain is None
    assert report.judge_accuracy is None
    assert [point["k"] for point in report.curve] == [1, 2, 3]
    assert report.model_dump_json()


def test_a_judge_that_failed_its_panel_is_not_heard(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(judge, bad)
    write_panel(bad, right=False)
    with pytest.raises(DataError, match="did not pass its panel"):
        go(tmp_path, "scores", tiny_policy, evaluation, judge=bad)


def test_prompts_without_a_verifier_are_refused_before_any_work(tmp_path: Path) -> None:
    prompt = Prompt(id="1", text="?", answer="1", task="chess", source="test")
    write_rows(tmp_path / "chess", [prompt])
    write_rows(tmp_path / "empty", [])
    with pytest.raises(DataError, match="unknown task `chess`"):
        go(tmp_path, "scores", tmp_path / "no policy", tmp_path / "chess")
    with pytest.raises(DataError, match="no prompts"):
        go(tmp_path, "scores", tmp_path / "no policy", tmp_path / "empty")
