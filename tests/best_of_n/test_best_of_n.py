"""Best-of-N: the curve on known samples, and the stage on a tiny policy and judge."""

import shutil
from collections.abc import Callable
from math import comb
from pathlib import Path

import pytest

from posttrain.artifacts import Manifest, content_files, read_rows, write_json, write_rows
from posttrain.best_of_n.curve import curve_of
from posttrain.best_of_n.stage import BestOfNConfig, BestOfNReport, run
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.records import Prompt, Sample, Score, content_id
from posttrain.reward_model.panel import (
    PANEL,
    Invariance,
    ScoredPair,
    Thresholds,
    judge_the_judge,
)

Seal = Callable[..., Manifest]


def samples(correct: list[list[int]], judge: list[list[float]] | None = None) -> list[Sample]:
    """Right samples say `1`; wrong ones each say something of their own."""
    return [
        Sample(
            suite="best_of_n",
            item_id=str(i),
            index=n,
            prompt="?",
            answer="1",
            response="?",
            correct=float(right),
            tokens=10,
            truncated=False,
            prediction="1" if right else f"wrong {n}",
            judge=judge[i][n] if judge else None,
        )
        for i, row in enumerate(correct)
        for n, right in enumerate(row)
    ]


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


def test_a_score_that_is_no_number_is_refused() -> None:
    rows = samples([[1, 0]], [[1.0, float("nan")]])
    with pytest.raises(DataError, match="item 0, sample 1"):
        curve_of(rows, 2, 200, seed=0)


@pytest.fixture
def evaluation(tmp_path: Path, seal: Seal) -> Path:
    texts = [f"What is {n} plus 1?" for n in range(5)]
    prompts = [
        Prompt(
            id=content_id("arithmetic", text),
            text=text,
            answer=str(n + 1),
            task="arithmetic",
            source="test",
        )
        for n, text in enumerate(texts)
    ]
    write_rows(tmp_path / "evaluation", prompts)
    seal(tmp_path / "evaluation", "Prompt")
    return tmp_path / "evaluation"


@pytest.fixture(scope="module")
def judge(tiny_policy: Path, seal: Seal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random judge with the policy's body, and a panel that lets it."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("judge") / "judge"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    model.config.pad_token_id = AutoTokenizer.from_pretrained(tiny_policy).pad_token_id
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_policy).save_pretrained(folder)
    write_panel(folder, right=True)
    seal(folder, "judge")
    return folder


def write_panel(folder: Path, *, right: bool) -> None:
    """A panel over one pair that the judge got right or wrong."""
    pair = ScoredPair(
        source="test", chosen=2.0 * right, rejected=1.0, chosen_length=9, rejected_length=9
    )
    steady = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    panel = judge_the_judge([pair], steady, Thresholds(max_ece=1))
    write_json(folder / PANEL, panel.model_dump(mode="json"))


def go(root: Path, name: str, policy: Path, evaluation: Path, **more: object) -> BestOfNReport:
    judge = more.pop("judge", None)
    journal = more.pop("journal", None) or Journal(root / f"journal-{name}")
    config = BestOfNConfig.model_validate(
        {"n_max": 4, "max_new_tokens": 5, "chunk": 2, "resamples": 200} | more
    )
    return run(
        config,
        policy=policy,
        evaluation=evaluation,
        judge=judge,
        scores=root / name,
        journal=journal,
    )


def test_rows_scores_and_report_agree(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path
) -> None:
    report = go(tmp_path, "scores", tiny_policy, evaluation, judge=judge)
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert (report.items, report.samples, len(rows)) == (5, 20, 20)
    assert report.tokens == sum(row.tokens for row in rows)
    assert len({row.judge for row in rows}) > 1
    table = {s.metric: s for s in read_rows(tmp_path / "scores", Score, "scores.jsonl")}
    assert set(table) == {f"{m}@{k}" for m in ("pass", "majority", "judge") for k in (1, 2, 4)}
    assert table["pass@1"].value == pytest.approx(sum(row.correct for row in rows) / 20)
    assert report.curve[-1]["judge"] == table["judge@4"].value
    assert table["judge@4"].n == 5


def test_a_killed_run_ends_like_an_unbroken_one(
    tiny_policy: Path, judge: Path, evaluation: Path, tmp_path: Path
) -> None:
    whole, half = Journal(tmp_path / "whole"), Journal(tmp_path / "half")
    go(tmp_path, "a", tiny_policy, evaluation, judge=judge, journal=whole)
    done = sorted(path.name for path in whole.scratch.iterdir())
    assert len(done) == 3
    shutil.copy(whole.scratch / done[1], half.scratch / done[1])
    (half.scratch / f"{done[0]}.partial").write_text("torn")
    go(tmp_path, "b", tiny_policy, evaluation, judge=judge, journal=half)
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
