"""The page reads what the stages really write: their own record types, not look-alikes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.report.conftest import Run, samples_of

from posttrain.artifacts import Manifest, write_rows
from posttrain.best_of_n.curve import curve_of
from posttrain.best_of_n.drawing import Toll
from posttrain.best_of_n.stage import report_of
from posttrain.curate.stage import CurateReport, DropSample, Flow
from posttrain.gate.comparison import Comparison
from posttrain.gate.verdict import Baseline, Verdict
from posttrain.journal import Journal
from posttrain.report.finish import finish
from posttrain.report.stage import ReportConfig, run
from posttrain.reward_model.panel import Invariance, ScoredPair, Thresholds, judge_the_judge


def judge_panel() -> str:
    pairs = [
        ScoredPair(
            source="s", chosen=i % 5, rejected=2.5, chosen_length=9 + i % 3, rejected_length=9
        )
        for i in range(40)
    ]
    invariance = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    return judge_the_judge(pairs, invariance, Thresholds(min_accuracy=0.9)).model_dump_json()


def gate_verdict() -> str:
    comparison = Comparison(
        suite="arithmetic", n=600, challenger=0.5, champion=0.25, difference=0.25, low=0.2,
        high=0.3, p=0.01, p_holm=0.02, detectable=0.05, prompts=600, p_margin=0.001,
    )  # fmt: skip
    return Verdict(
        verdict="investigate", reasons=["too few items"], promoted=False, promotion="none",
        rule="better", alpha=0.05, looks=1, margin=0.02, primary=["arithmetic"], policy="a" * 64,
        scores="b" * 64, baseline=Baseline(kind="stand_in", policy=None, scores="c" * 64),
        champion=None, registry="none", suites=[comparison],
    ).model_dump_json()  # fmt: skip


def curate_report() -> CurateReport:
    flow = Flow(rows_in=10, kept=7, dropped=3)
    sample = DropSample(filter="schema", reason="no answer", kind="prompts", id="1", text="a row")
    return CurateReport(
        rows_in=10, kept=7, dropped=3, kinds={"prompts": flow}, sources={"book": flow},
        filters={"schema": {"prompts": 3}}, reasons={"schema: no answer": 3}, difficulty={},
        samples=[sample],
    )  # fmt: skip


def test_the_page_shows_what_each_stage_reports(
    seal: Callable[..., Manifest], tmp_path: Path
) -> None:
    made = Run(tmp_path / "run", seal)
    made.add("curate", "prompts", "Prompt", report=curate_report().model_dump(mode="json"))
    made.add("reward_model", "judge", "judge", {"panel.json": judge_panel()})
    made.add("gate", "verdict", "verdict", {"verdict.json": gate_verdict()})
    rows = [
        row.model_copy(update={"judge": row.correct, "prediction": row.response})
        for row in samples_of("rl", "best_of_n", 0.5, copies=4)
    ]
    rows.sort(key=lambda row: row.item_id)
    curve = curve_of(rows, 4, 200, 0)
    write_rows(tmp_path / "run/best_of_n/scores", rows)
    write_rows(tmp_path / "run/best_of_n/scores", curve.scores(len(rows) // 4), "scores.jsonl")
    report = report_of(curve, rows, 4, Toll(2.0, Counter(empty=3))).model_dump(mode="json")
    made.add("best_of_n", "scores", "scores", {}, report=report)

    journal = Journal(tmp_path / "journal")
    found = run(ReportConfig(), inputs=made.folders, page=tmp_path / "page", journal=journal)

    assert set(found.missing) == {"curves", "benchmarks", "samples"}
    html = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert "The panel failed" in html
    assert "required" in html
    assert "judge@4 is +" in html
    assert "weighted_majority@4 is +" in html
    assert "Of 240 samples 3 were empty." in html
    assert "Left out for want of scores or log-probs: self_certainty." in html
    assert "majority@N, tokens" in html
    assert "majority@N, seconds" not in html
    record = {"task": "best_of_n", "stage": "best_of_n", "cached": False, "reason": "first run"}
    record |= {"started": 0.0, "ended": 4.0, "seconds": 3.0, "report": report}
    finish(tmp_path / "page", [record], tmp_path / "finished")
    timed = (tmp_path / "finished/report.html").read_text(encoding="utf-8")
    assert "majority@N, seconds" in timed
    assert "too few items" in html
    assert "+25.0" in html
    assert "no answer" in html
    metrics = json.loads((tmp_path / "page/summary.json").read_text())["metrics"]
    assert [point["n"] for point in metrics["best_of_n"]] == [1, 2, 4]
    assert all(point["majority"] and point["judge"] for point in metrics["best_of_n"])
    assert all(set(point["selectors"]) == {"weighted_majority"} for point in metrics["best_of_n"])
    assert metrics["reward_model_accuracy"] == 0.4
    assert metrics["reward_model"]["n"] == 40
