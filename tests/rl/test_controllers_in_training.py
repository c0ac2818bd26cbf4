"""Controllers in the whole stage: neutral settings, and runs that are killed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rl.simulated import HastyEngine, prompts_of

from posttrain.artifacts import content_files, write_rows
from posttrain.journal import Journal, read_curves
from posttrain.rewards import REWARDS
from posttrain.rl.config import RLConfig
from posttrain.rl.rollout import Rollout
from posttrain.rl.stage import RLReport, run

SMALL: dict[str, Any] = {
    "steps": 3,
    "prompts_per_step": 2,
    "group_size": 3,
    "max_new_tokens": 8,
    "learning_rate": 1e-2,
    "rewards": ["low_tokens"],
    "checkpoint_every": 1,
    "engine": "hasty",
}


class KilledError(Exception):
    """Stands for SIGKILL."""


class MortalJournal(Journal):
    """Dies when it is told of a step."""

    fatal_step = 0

    def log(self, step: int, **metrics: float) -> None:
        if step == self.fatal_step:
            raise KilledError
        super().log(step, **metrics)


def low_tokens(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """The share of tokens with ids below 384."""
    return [sum(t < 384 for t in r.tokens) / max(1, len(r.tokens)) for r in rollouts]


@pytest.fixture
def train(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RLReport]:
    from posttrain.engines import ENGINES

    monkeypatch.setitem(REWARDS, "low_tokens", low_tokens)
    monkeypatch.setitem(ENGINES, "hasty", HastyEngine)
    write_rows(tmp_path / "prompts", prompts_of([1] * 9))

    def training(name: str, journal: Journal | None = None, **options: Any) -> RLReport:
        return run(
            RLConfig.model_validate(SMALL | options),
            policy=tiny_policy,
            prompts=tmp_path / "prompts",
            trained=tmp_path / name / "trained",
            journal=journal or Journal(tmp_path / name / "journal"),
        )

    return training


METRICS = {
    "staleness": {"staleness/mean", "staleness/max", "queue/length"},
    "partial_rollout": {"stale_token_frac", "resumed/share", "pending"},
}
NEUTRAL = [{"name": "staleness", "eta": 0}, {"name": "partial_rollout", "over_sampling": 1.0}]


@pytest.mark.parametrize("controller", NEUTRAL, ids=lambda c: c["name"])
def test_the_neutral_setting_is_the_synchronous_run_bit_for_bit(
    train: Callable[..., RLReport], tmp_path: Path, controller: dict[str, Any]
) -> None:
    assert train("plain") == train("neutral", controller=controller)
    assert content_files(tmp_path / "plain/trained") == content_files(tmp_path / "neutral/trained")


@pytest.mark.parametrize("name", ["staleness", "partial_rollout"])
def test_a_killed_run_ends_in_the_same_bits(
    train: Callable[..., RLReport], tmp_path: Path, name: str
) -> None:
    whole = train("whole", controller=name)
    journal = MortalJournal(tmp_path / "killed/journal")
    journal.fatal_step = 2
    with pytest.raises(KilledError):
        train("killed", journal, controller=name)
    journal.fatal_step = 0
    assert train("killed", journal, controller=name) == whole
    assert content_files(tmp_path / "killed/trained") == content_files(tmp_path / "whole/trained")
    assert whole.generated == whole.used + sum(whole.dropped.values()) + whole.pending
    names = {point.name for point in read_curves(tmp_path / "whole/journal/curves.jsonl")}
    assert METRICS[name] <= names
