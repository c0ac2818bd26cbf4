"""The loop learns, accounts for every rollout, and ends in the same bits however often it died."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.artifacts import content_files, write_rows
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal, read_curves
from posttrain.policies import load_policy
from posttrain.records import Prompt, content_id
from posttrain.rewards import REWARDS
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.config import RLConfig
from posttrain.rl.experience import estimated, lessons
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES
from posttrain.rl.rollout import Rollout
from posttrain.rl.scored import Scored
from posttrain.rl.stage import RLReport, run

SMALL: dict[str, Any] = {
    "steps": 4,
    "prompts_per_step": 3,
    "group_size": 4,
    "max_new_tokens": 6,
    "learning_rate": 1e-2,
    "rewards": ["low_tokens"],
    "checkpoint_every": 1,
}

RECIPES: dict[str, dict[str, Any]] = {
    "grpo": {"loss": {"name": "clip", "aggregation": "sequence_mean"}},
    "rloo": {"advantage": "rloo"},
    "dr_grpo": {
        "advantage": "dr_grpo",
        "loss": {"name": "clip", "aggregation": "token_sum_norm"},
    },
    "dapo": {
        "loss": {"name": "clip", "clip_high": 0.28},
        "rewards": ["low_tokens", {"name": "overlong", "max_length": 6, "buffer": 2}],
        "max_draws": 2,
        "mask_truncated": False,
    },
    "lora_with_kl": {"lora_rank": 2, "kl_coefficient": 0.1, "advantage": "grpo"},
    "several_updates": {"ppo_epochs": 2, "minibatches": 2, "old_logps": "recompute"},
    "banded": {"prompt_sampler": "difficulty_band", "schedule": {"name": "cosine"}},
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
    """A reward a random policy can earn: the share of its tokens with ids below 384."""
    return [sum(t < 384 for t in r.tokens) / max(1, len(r.tokens)) for r in rollouts]


def sometimes_broken(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """As `low_tokens`, but the first rollout of all has no number."""
    return [float("nan"), *low_tokens(rollouts, None)[1:]]


def constant(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    return [0.3 for _ in rollouts]


@pytest.fixture(autouse=True)
def _plug_in_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REWARDS, "low_tokens", low_tokens)
    monkeypatch.setitem(REWARDS, "constant", constant)
    monkeypatch.setitem(REWARDS, "sometimes_broken", sometimes_broken)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    texts = [f"{a} + {b} = ?" for a in range(2, 5) for b in range(11, 14)]
    rows = [
        Prompt(id=content_id("arithmetic", t), text=t, answer="1", task="arithmetic", source="test")
        for t in texts
    ]
    write_rows(tmp_path / "prompts", rows)
    return tmp_path / "prompts"


def train(
    options: dict[str, Any], policy: Path, prompts: Path, out: Path, journal: Journal | None = None
) -> RLReport:
    config = RLConfig.model_validate(SMALL | options)
    chosen = journal or Journal(out / "journal")
    return run(config, policy=policy, prompts=prompts, trained=out / "trained", journal=chosen)


def test_the_reward_rises(tiny_policy: Path, prompts: Path, tmp_path: Path) -> None:
    options = {"steps": 15, "group_size": 8, "learning_rate": 3e-2, "checkpoint_every": 50}
    report = train(options, tiny_policy, prompts, tmp_path)
    assert report.end_reward > report.start_reward + 0.15


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_killed_run_ends_in_the_same_bits(
    tiny_policy: Path, prompts: Path, tmp_path: Path, recipe: str
) -> None:
    whole = train(RECIPES[recipe], tiny_policy, prompts, tmp_path / "whole")
    journal = MortalJournal(tmp_path / "killed" / "journal")
    for journal.fatal_step in (2, 4):
        with pytest.raises(KilledError):
            train(RECIPES[recipe], tiny_policy, prompts, tmp_path / "killed", journal)
    journal.fatal_step = 0
    resumed = train(RECIPES[recipe], tiny_policy, prompts, tmp_path / "killed", journal)
    assert content_files(tmp_path / "killed/trained") == content_files(tmp_path / "whole/trained")
    assert resumed == whole
    assert whole.generated == whole.used + sum(whole.dropped.values())
    changed = load_policy(tmp_path / "whole/trained").model.state_dict()
    started = load_policy(tiny_policy).model.state_dict()
    assert any(not torch.equal(changed[name], started[name]) for name in started)


def test_a_damaged_checkpoint_costs_steps_and_not_the_result(
    tiny_policy: Path, prompts: Path, tmp_path: Path
) -> None:
    train({}, tiny_policy, prompts, tmp_path / "whole")
    journal = MortalJournal(tmp_path / "killed" / "journal")
    journal.fatal_step = 4
    with pytest.raises(KilledError):
        train({}, tiny_policy, prompts, tmp_path / "killed", journal)
    newest = sorted(journal.scratch.glob("checkpoint-*"))[-1] / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    journal.fatal_step = 0
    train({}, tiny_policy, prompts, tmp_path / "killed", journal)
    assert content_files(tmp_path / "killed/trained") == content_files(tmp_path / "whole/trained")


def test_groups_without_signal_leave_the_weights_alone(
    tiny_policy: Path, prompts: Path, tmp_path: Path
) -> None:
    report = train({"rewards": ["constant"]}, tiny_policy, prompts, tmp_path)
    assert report.dropped == {"zero_signal": report.generated}
    assert (report.used, report.kept_groups) == (0, 0)
    before = load_policy(tiny_policy).model.state_dict()
    after = load_policy(tmp_path / "trained").model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert "loss" not in {p.name for p in read_curves(tmp_path / "journal/curves.jsonl")}


def test_a_reward_that_is_no_number_costs_its_group_and_not_the_run(
    tiny_policy: Path, prompts: Path, tmp_path: Path
) -> None:
    report = train({"rewards": ["sometimes_broken"]}, tiny_policy, prompts, tmp_path)
    assert report.dropped == {"bad_reward": 4 * 4}
    assert report.used == report.generated - 16 > 0
    assert 0 < report.end_reward < 1


def groups_of(prompts: Path) -> Scored:
    """Two groups with signal and two without, of different lengths, all in made-up tokens."""
    rows = [json.loads(line) for line in (prompts / "rows.jsonl").read_text().splitlines()[:4]]
    groups = [
        tuple(
            Rollout(
                Prompt(**row),
                "",
                tuple(range(20, 22 + i + number)),
                (-6.6,) * (2 + i + number),
                False,
                reward=float(i == 0 or number >= 2),
            )
            for i in range(4)
        )
        for number, row in enumerate(rows)
    ]
    return Scored(groups)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum_norm"])
def test_skipping_silent_groups_and_micro_batching_change_nothing(
    tiny_policy: Path, prompts: Path, aggregation: str
) -> None:
    def weights(*, keep_silent: bool, micro_batch_tokens: int) -> dict[str, torch.Tensor]:
        config = RLConfig.model_validate(
            SMALL | {"micro_batch_tokens": micro_batch_tokens, "old_logps": "recompute"}
        )
        loss = POLICY_LOSSES["clip"]
        learner = Learner(config, tiny_policy, lambda batch: loss(batch, aggregation=aggregation))
        given = groups_of(prompts)
        found = estimated(given, ADVANTAGES["grpo"], [])
        learnt = lessons(given, found, Counter(), keep_silent=keep_silent, mask_truncated=False)
        assert sum(lesson.learn for lesson in learnt) == (16 if keep_silent else 8)
        learner.update(learnt, 1e-2)
        # Adam's first step hides the scale of a gradient; its moment does not.
        return {k: v.clone() for k, v in learner.tensors().items() if k.endswith("/exp_avg")}

    expected = weights(keep_silent=True, micro_batch_tokens=10_000)
    for found in (
        weights(keep_silent=False, micro_batch_tokens=10_000),
        weights(keep_silent=False, micro_batch_tokens=1),
    ):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name], value, atol=1e-7), name


def test_the_curves_tell_what_happened(tiny_policy: Path, prompts: Path, tmp_path: Path) -> None:
    options = {"kl_coefficient": 0.05, "ppo_epochs": 2}
    report = train(options, tiny_policy, prompts, tmp_path)
    points = list(read_curves(tmp_path / "journal/curves.jsonl"))
    first = {p.name: p.value for p in points if p.step == 1}
    last = {p.name: p.value for p in points if p.step == 4}
    wanted = {
        "reward/mean", "reward/low_tokens", "kept_groups", "response/length",
        "response/truncated", "entropy", "kl", "clip/low", "clip/high", "grad_norm", "lr",
        "tokens", "time/rollout", "time/update", "mismatch/mean", "loss", "ratio/mean",
    }  # fmt: skip
    assert wanted <= first.keys()
    assert first["mismatch/mean"] < 1e-5
    assert last["kl"] > first["kl"] >= 0
    assert first["entropy"] == pytest.approx(6.6, abs=0.4)
    assert report.tokens == sum(p.value for p in points if p.name == "tokens")


def test_the_kl_term_holds_the_policy_back(
    tiny_policy: Path, prompts: Path, tmp_path: Path
) -> None:
    moved = {}
    for coefficient in (0.0, 10.0):
        out = tmp_path / str(coefficient)
        train({"kl_coefficient": coefficient, "steps": 6}, tiny_policy, prompts, out)
        after = load_policy(out / "trained").model
        before = load_policy(tiny_policy).model
        ids = torch.arange(4, 60)[None]
        with torch.no_grad():
            p, q = after(ids).logits.log_softmax(-1), before(ids).logits.log_softmax(-1)
        moved[coefficient] = (p.exp() * (p - q)).sum(-1).mean().item()
    assert moved[10.0] < 0.7 * moved[0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"advantage": "gpro"}, "did you mean `grpo`"),
        ({"loss": {"name": "clip", "clip_hi": 0.3}}, "did you mean `clip_high`"),
        ({"rewards": ["judge"]}, "no judge"),
        ({"reward_weights": {"verifier": 1.0}}, "unknown part `verifier`"),
    ],
)
def test_a_mistake_in_the_config_fails_before_anything_is_read(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(options, tmp_path / "absent", tmp_path / "absent", tmp_path)


def test_prompts_must_be_there_and_have_a_verifier(tiny_policy: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "none", [])
    with pytest.raises(DataError, match="no prompts"):
        train({}, tiny_policy, tmp_path / "none", tmp_path)
    odd = Prompt(id="1", text="?", answer="1", task="arithmetik", source="test")
    write_rows(tmp_path / "odd", [odd])
    with pytest.raises(DataError, match="did you mean `arithmetic`"):
        train({}, tiny_policy, tmp_path / "odd", tmp_path)
