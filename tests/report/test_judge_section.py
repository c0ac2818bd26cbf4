"""The judge's section: public sets, the style matrix, and who used a judge that failed."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.report.conftest import Run

from posttrain.artifacts import Manifest
from posttrain.journal import Journal
from posttrain.report.stage import ReportConfig, run
from posttrain.reward_model.panel import (
    Invariance,
    OrderSwap,
    ScoredPair,
    Thresholds,
    judge_the_judge,
)
from posttrain.reward_model.panel_sets.items import PanelSet, Ranking
from posttrain.reward_model.panel_sets.rm_bench import style_matrix


class ByLength:
    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        return [float(len(response)) for response in responses]


def panel() -> str:
    item = Ranking("p", ("a", "bb", "ccc"), ("d", "ee", "fff"), "chat")
    one = PanelSet("rm_bench", "RM-Bench chat", [item], 0, style_matrix, min_score=0.9)
    pairs = [ScoredPair(source="s", chosen=9, rejected=0, chosen_length=3, rejected_length=3)]
    steady = Invariance(padding_left=None, padding_right=None, order=0, trainer=None, bos=None)
    swap = OrderSwap(flips=0.5, first_wins=0.75)
    sets = {"rm_bench": one.examine(ByLength())}
    found = judge_the_judge(pairs, steady, Thresholds(), swap=swap, sets=sets)
    return found.model_dump_json()


def test_the_page_tells_of_sets_and_of_a_failed_judge_in_use(
    seal: Callable[..., Manifest], tmp_path: Path
) -> None:
    made = Run(tmp_path / "run", seal)
    made.add("reward_model", "judge", "judge", {"panel.json": panel()})
    made.add("rl", "trained", "policy", report={"judge_panel": "failed"})
    out, journal = tmp_path / "page", Journal(tmp_path / "journal")
    run(ReportConfig(), inputs=made.folders, page=out, journal=journal)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "RM-Bench chat" in page
    assert "right: concise" in page
    assert "rm_bench: total 0.333 is below 0.9" in page
    assert "Used all the same, as told to, by: rl." in page
    assert "swap flips" in page


def test_the_page_tells_what_a_judge_that_writes_was_asked(
    seal: Callable[..., Manifest], tmp_path: Path
) -> None:
    made = Run(tmp_path / "run", seal)
    told = {"panel": json.loads(panel()), "numbers": {"asked": 39.0, "unread_share": 0.25}}
    made.add("reward_model", "judge", "judge", {"panel.json": panel()}, report=told)
    out, journal = tmp_path / "page", Journal(tmp_path / "journal")
    run(ReportConfig(), inputs=made.folders, page=out, journal=journal)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "unread share" in page
    assert "25.0%" in page
