"""A judge that failed its panel: refused by the stages, or used as told and named in the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from posttrain.artifacts import write_json, write_rows
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.records import Prompt, content_id
from posttrain.reject.stage import RejectConfig
from posttrain.reject.stage import run as reject
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.panel import (
    Invariance,
    ScoredPair,
    Thresholds,
    judge_the_judge,
    panel_word,
)
from posttrain.reward_model.pooling import load_scoring_model
from posttrain.rl.config import RLConfig
from posttrain.rl.stage import run as rl


@pytest.fixture
def judge(tiny_policy: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "judge"
    load_scoring_model(tiny_policy, "last").save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_policy).save_pretrained(folder)
    write_panel(folder, chosen=0.0)
    return folder


def write_panel(folder: Path, chosen: float) -> None:
    pair = ScoredPair(source="s", chosen=chosen, rejected=0, chosen_length=1, rejected_length=1)
    steady = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    panel = judge_the_judge([pair], steady, Thresholds())
    write_json(folder / "panel.json", panel.model_dump(mode="json"))


@pytest.fixture
def ports(tiny_policy: Path, judge: Path, tmp_path: Path) -> dict[str, Path]:
    text = "What is 1 + 1?"
    row = Prompt(id=content_id(text), text=text, answer="2", task="arithmetic", source="s")
    write_rows(tmp_path / "prompts", [row])
    return {"policy": tiny_policy, "prompts": tmp_path / "prompts", "judge": judge}


def run_rl(ports: dict[str, Path], tmp_path: Path, **options: Any) -> Any:
    config = RLConfig.model_validate(
        {"steps": 1, "prompts_per_step": 1, "group_size": 2, "max_new_tokens": 4}
        | {"rewards": ["judge"]}
        | options
    )
    return rl(config, **ports, trained=tmp_path / "trained", journal=Journal(tmp_path / "rl"))


def run_reject(ports: dict[str, Path], tmp_path: Path, **options: Any) -> Any:
    config = RejectConfig.model_validate(
        {"samples": 2, "max_new_tokens": 4, "verifier": False} | options
    )
    return reject(config, **ports, demonstrations=tmp_path / "d", journal=Journal(tmp_path / "re"))


@pytest.mark.parametrize("stage", [run_rl, run_reject])
def test_a_failed_judge_is_refused_unless_told_otherwise(
    stage: Callable[..., Any], ports: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="allow_failed_judge"):
        stage(ports, tmp_path)
    assert stage(ports, tmp_path, allow_failed_judge=True).judge_panel == "failed"
    write_panel(ports["judge"], chosen=9.0)
    assert stage(ports, tmp_path / "again").judge_panel == "passed"


def test_a_stage_that_asks_no_judge_says_so(ports: dict[str, Path], tmp_path: Path) -> None:
    assert run_rl(ports, tmp_path, rewards=["verifier"]).judge_panel == "none"
    assert panel_word(None) == "none"


def test_a_judge_without_a_panel_is_never_let_in(judge: Path) -> None:
    assert load_judge(judge, allow_failed=True).score(["a"], ["b"])
    (judge / "panel.json").unlink()
    with pytest.raises(DataError, match="no panel"):
        load_judge(judge, allow_failed=True)
