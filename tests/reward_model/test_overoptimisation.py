"""The curve of Best-of-N against KL: by hand, through the stage, and what fails the panel."""

from collections.abc import Callable
from math import log
from pathlib import Path

import numpy as np
import pytest
from tests.reward_model.test_reward_model import SMALL, preference

from posttrain.artifacts import write_rows
from posttrain.config import Plugin
from posttrain.errors import ConfigError
from posttrain.journal import Journal
from posttrain.report.sections.judge import overoptimisation
from posttrain.reward_model.overoptimisation import candidates_of, curve, kl_of
from posttrain.reward_model.panel import read_panel
from posttrain.reward_model.stage import RewardModelConfig, preflight, run, still_holds


def test_the_curve_by_hand() -> None:
    """Scores 1, 2, 3, 4, right where they are 2 and 3: of the six pairs the best is 4 in three,
    3 in two and 2 in one."""
    correct, scores = np.array([[0.0, 1, 1, 0]]), np.array([[1.0, 2, 3, 4]])
    one, two, four = curve(correct, scores, 0)
    assert (one.n, one.kl, one.judge, one.gold) == (1, 0.0, 2.5, 0.5)
    assert (two.judge, two.gold) == (pytest.approx(20 / 6), pytest.approx(0.5))
    assert (four.judge, four.gold) == (4.0, 0.0)
    assert (two.kl, four.kl) == (pytest.approx(log(2) - 1 / 2), pytest.approx(log(4) - 3 / 4))
    assert kl_of(16) == pytest.approx(1.835, abs=1e-3)


def test_a_judge_that_likes_what_is_wrong_is_told() -> None:
    rng = np.random.default_rng(0)
    correct = (rng.random((200, 8)) < 0.5).astype(float)
    noise = rng.normal(size=correct.shape)
    good, bad = curve(correct, noise + correct, 0), curve(correct, noise - correct, 0)
    assert [point.gold for point in good] == sorted(point.gold for point in good)
    assert not any(point.below for point in good)
    assert bad[-1].below == [1, 2, 4]
    assert bad[-1].judge > bad[0].judge
    blind = curve(correct, noise, 0)
    assert not any(point.below for point in blind)


def test_a_candidate_without_a_score_is_never_chosen() -> None:
    correct = np.array([[1.0, 0], [1, 1]])
    scores = np.array([[np.nan, 3], [np.nan, np.nan]])
    one, two = curve(correct, scores, 0)
    # The second prompt has no score at all and is left out; the first one's right answer has none.
    assert (one.gold, two.gold, two.judge) == (0.0, 0.0, 3.0)
    assert curve(correct, np.full((2, 2), np.nan), 0) == []


def test_the_panel_holds_the_curve(
    tiny_policy: Path, tmp_path: Path, seal: Callable[..., object], journal: Journal
) -> None:
    write_rows(tmp_path / "preferences", (preference(number) for number in range(40)))
    seal(tmp_path / "preferences", "Preference")
    suite = {"name": "arithmetic", "limit": 6, "samples": 4, "max_new_tokens": 5}
    config = RewardModelConfig.model_validate(
        {"max_steps": 2, "max_ece": 1, "min_accuracy": 0, "overoptimisation": suite} | SMALL
    )
    folder = tmp_path / "judge"
    ports = {"policy": tiny_policy, "preferences": tmp_path / "preferences"}
    report = run(config, **ports, judge=folder, journal=journal)
    found = report.panel.overoptimisation
    assert found is not None
    assert (found.suite, found.prompts, found.samples, found.unscored) == ("arithmetic", 6, 4, 0)
    assert [point.n for point in found.points] == [1, 2, 4]
    assert found.points[0].judge <= found.points[1].judge <= found.points[2].judge
    assert read_panel(folder) == report.panel
    assert still_holds({"judge": folder}, config) is None
    fewer = config.model_copy(
        update={"overoptimisation": Plugin(name="arithmetic", options={"limit": 5})}
    )
    assert "arithmetic" in (still_holds({"judge": folder}, fewer) or "")
    shown = str(overoptimisation(report.panel.model_dump(mode="json")))
    assert "6 prompts of arithmetic" in shown


@pytest.mark.parametrize("name", ["mmlu_stem", "arena_hard", "held_out"])
def test_a_suite_without_verified_prompts_is_refused_before_any_work(
    name: str, tmp_path: Path
) -> None:
    config = RewardModelConfig.model_validate({"overoptimisation": name})
    assert [*preflight(config)]
    with pytest.raises(ConfigError):
        candidates_of(config.overoptimisation, str(tmp_path))
