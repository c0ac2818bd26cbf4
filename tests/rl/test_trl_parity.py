"""Our losses, their gradients and the advantages are those of TRL's GRPOTrainer.

Both see the same policy, tokens and rewards. TRL's trainer makes its batch, its advantages and its
loss by its own code; only the tokens are given to it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from posttrain.engines.likelihood import Row, response_logps
from posttrain.plugins import Plugin, build
from posttrain.policies import chat_ids, load_policy
from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.learner import like
from posttrain.rl.losses import POLICY_LOSSES, LossBatch, Totals
from posttrain.rl.rollout import Rollout
from posttrain.rl.scored import Scored

LONGEST = 16
TEXTS = ["1+1=", "What is 23+45?"]
LENGTHS = [3, 16, 7, 1, 5, 2, 11, 8]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]
TOKENS = [[20 + (7 * i + j) % 60 for j in range(n)] for i, n in enumerate(LENGTHS)]


class Side(NamedTuple):
    """TRL's trainer and the batch it made; our own batch without log-probs."""

    trainer: Any
    inputs: dict[str, Any]
    rows: list[Row]
    advantages: torch.Tensor


@pytest.fixture(scope="module")
def side(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Side:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    policy = load_policy(tiny_policy)
    prompts = [chat_ids(policy.tokenizer, text) for text in TEXTS for _ in range(4)]

    def drawn(_prompts: object, _trainer: object) -> dict[str, Any]:
        logprobs = [[0.0] * len(ids) for ids in TOKENS]
        return {"prompt_ids": prompts, "completion_ids": TOKENS, "logprobs": logprobs}

    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda **_columns: REWARDS,
        args=GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=LONGEST,
            bf16=False,
            use_cpu=True,
            report_to=[],
        ),
        train_dataset=Dataset.from_list([{"prompt": text} for text in TEXTS]),
        processing_class=policy.tokenizer,
        rollout_func=drawn,
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    asked = [{"prompt": text} for text in TEXTS for _ in range(4)]
    inputs = trainer._generate_and_score_completions(asked)
    rows = [
        Row(tuple(p), tuple(t), i) for i, (p, t) in enumerate(zip(prompts, TOKENS, strict=True))
    ]
    return Side(trainer, inputs, rows, advantages())


def advantages() -> torch.Tensor:
    made = [
        Rollout(
            Prompt(id=text, text=text, answer="", task="arithmetic", source="test"),
            "", tuple(tokens), (0.0,) * len(tokens), False, reward=reward,
        )
        for text, tokens, reward in zip(
            [text for text in TEXTS for _ in range(4)], TOKENS, REWARDS, strict=True
        )
    ]  # fmt: skip
    estimate = ADVANTAGES["grpo"](Scored([tuple(made[:4]), tuple(made[4:])]), eps=1e-4)
    return torch.cat(estimate.advantages)


def old_logps(logp_BT: torch.Tensor) -> torch.Tensor:
    """Those of a policy some way off, so that ratios lie within and beyond every clip."""
    noise_BT = torch.randn(logp_BT.shape, generator=torch.Generator().manual_seed(0))
    return logp_BT.detach() + 0.3 * noise_BT


def ours(side: Side, name: str, options: dict[str, Any]) -> tuple[torch.Tensor, LossBatch]:
    pad = side.trainer.processing_class.pad_token_id
    logp_BT, mask_BT = response_logps(side.trainer.model, side.rows, pad)
    old_BT = old_logps(logp_BT)
    totals = Totals(sum(LENGTHS), len(LENGTHS), LONGEST, sum(LENGTHS))
    batch = LossBatch(
        logp_BT=logp_BT,
        old_logp_BT=old_BT,
        advantage_BT=like(logp_BT, [[a] for a in side.advantages.tolist()])[:, :1],
        mask_BT=mask_BT,
        totals=totals,
        behaviour_logp_BT=old_BT,
        external_B1=torch.zeros(len(LENGTHS), 1, dtype=torch.bool),
    )
    return build(POLICY_LOSSES, Plugin(name=name, options=options))(batch).value, batch


def slopes(loss: torch.Tensor, model: Any) -> torch.Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_advantages_are_trls(side: Side) -> None:
    assert side.inputs["advantages"].tolist() == pytest.approx(side.advantages.tolist(), abs=1e-6)
    assert side.advantages[:4].abs().max() > 1
    assert (side.advantages[4:] == 0).all()


CLIP = {"clip_low": 0.2, "clip_high": 0.28}


@pytest.mark.parametrize(
    ("theirs", "high", "name", "options"),
    [
        ("grpo", 0.28, "clip", {**CLIP, "aggregation": "sequence_mean"}),
        ("dapo", 0.28, "clip", {**CLIP, "aggregation": "token_mean"}),
        ("dr_grpo", 0.28, "clip", {**CLIP, "aggregation": "token_sum_norm"}),
        ("cispo", 1.1, "cispo", {"clip_high": 1.1}),
        ("gspo", 0.02, "gspo", {"clip_low": 0.2, "clip_high": 0.02}),
    ],
)
def test_loss_and_gradient_are_trls(
    side: Side,
    monkeypatch: pytest.MonkeyPatch,
    theirs: str,
    high: float,
    name: str,
    options: dict[str, Any],
) -> None:
    trainer = side.trainer
    value, batch = ours(side, name, options)
    level = "sequence" if theirs == "gspo" else "token"
    monkeypatch.setattr(trainer, "loss_type", "grpo" if theirs == "gspo" else theirs)
    monkeypatch.setattr(trainer, "importance_sampling_level", level)
    monkeypatch.setattr(trainer, "epsilon_high", high)
    loss = trainer._compute_loss(
        trainer.model, {**side.inputs, "old_per_token_logps": batch.old_logp_BT}
    )
    assert abs(value.item()) > 1e-3
    assert value.item() == pytest.approx(loss.item(), abs=1e-5)
    found, expected = slopes(value, trainer.model), slopes(loss, trainer.model)
    assert expected.norm() > 1e-3
    assert (found - expected).abs().max() < 1e-5
