"""Kinds of judge: one loader for all of them, and scores from those that only compare."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from posttrain.errors import DataError
from posttrain.plugins import Plugin
from posttrain.reward_model.kinds import KINDS
from posttrain.reward_model.loading import JUDGE_FILE, kind_of, write_kind
from posttrain.reward_model.protocol import Judge, PairwiseJudge
from posttrain.reward_model.stage import RewardModelConfig, preflight
from posttrain.reward_model.tournament import RIVALS, Tournament, fixtures, strength


class Strengths:
    """Compares responses that are numbers by their difference; the first place is worth `place`."""

    def __init__(self, place: float = 0.0) -> None:
        self.place = place
        self.asked = 0

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        self.asked += len(prompts)
        known = {"": 0.0, "none": math.nan}
        value = [
            [known.get(text) if text in known else float(text) for text in row]
            for row in zip(firsts, seconds, strict=True)
        ]
        return [a - b + self.place for a, b in value]


def test_a_tournament_gives_strengths_around_their_mean() -> None:
    judge = Tournament(Strengths(place=5.0))
    assert isinstance(judge, Judge)
    assert isinstance(judge, PairwiseJudge)
    # (2 - 1) + (2 - 0) over oneself and two rivals: 1; the liking for the first place cancels
    scores = judge.score(["p", "p", "q", "p"], ["2", "1", "7", "0"])
    assert scores == pytest.approx([1.0, 0.0, 3.5, -1.0])
    assert judge.score(["p", "q", "p", "p"], ["0", "7", "1", "2"]) == pytest.approx(
        [-1.0, 3.5, 0.0, 1.0]
    )
    assert judge.compare(["p"], ["2"], ["1"]) == [6.0]


def test_meetings_without_an_answer_do_not_count() -> None:
    scores = Tournament(Strengths()).score(["p", "p", "p"], ["2", "none", "0"])
    assert scores[0] == 1.0
    assert math.isnan(scores[1])
    assert math.isnan(strength([math.nan]))


def test_a_large_tournament_is_a_circle() -> None:
    group = {str(number) for number in range(30)}
    pairs = fixtures(group)
    met = [sum(one in pair for pair in pairs) for one in group]
    assert set(met) == {RIVALS}
    assert len(pairs) == len(set(pairs)) == 30 * RIVALS // 2
    assert len(fixtures({str(number) for number in range(9)})) == 36
    judge = Strengths()
    Tournament(judge).score(["p"] * 30, sorted(group))
    assert judge.asked == 30 * RIVALS


def test_a_folder_says_its_kind_with_all_options(tmp_path: Path) -> None:
    write_kind(tmp_path, Plugin(name="bradley_terry"))
    assert not (tmp_path / JUDGE_FILE).exists()
    assert type(kind_of(tmp_path)) is KINDS["bradley_terry"]
    write_kind(tmp_path, Plugin(name="bt_adaptive_margin", options={"variant": "ref"}))
    found = kind_of(tmp_path)
    assert (found.variant, found.strength, found.quantile) == ("ref", 1.0, 0.7)
    (tmp_path / JUDGE_FILE).write_text('{"name": "oracle"}')
    with pytest.raises(DataError, match="kind cannot be read"):
        kind_of(tmp_path)


def test_a_kind_that_does_not_exist_is_found_before_any_work() -> None:
    [fault] = preflight(RewardModelConfig(kind=Plugin(name="oracle")))
    assert "unknown plug-in" in fault.what


def test_choosing_a_kind_imports_no_torch() -> None:
    code = (
        "import sys, posttrain.reward_model.kinds, posttrain.reward_model.loading;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
