"""Pairs that share a row: what TRL's loss and its gradients are of two rows each, to 1e-5."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from trl.trainer.reward_trainer import DataCollatorForPreference

from posttrain.journal import Journal
from posttrain.records import Preference, content_id
from posttrain.reward_model.judge import RewardModelJudge, TokenPair, token_pairs
from posttrain.reward_model.pooling import POOLINGS, PoolingName, load_scoring_model
from posttrain.reward_model.sharing import (
    Packed,
    PairCollator,
    can_share,
    common_length,
    shared_share,
    visible,
)
from posttrain.reward_model.stage import RewardModelConfig
from posttrain.reward_model.trainer import reward_trainer


def pairs_of(tokenizer: Any) -> list[TokenPair]:
    texts = [
        ("What is 2 + 2?", "2 + 2 = 4", "2 + 2 = 5 or so"),
        ("Say yes.", "yes", "no, not at all, never"),
        ("Say more of the same thing again and again.", "a b c d e f", "a b c d e g"),
    ]
    rows = [
        Preference(
            id=content_id(*t), prompt_id=content_id(t[0]), prompt=t[0], chosen=t[1],
            rejected=t[2], source="s", margin=0.1 * at,
        )
        for at, t in enumerate(texts)
    ]  # fmt: skip
    pairs = token_pairs(tokenizer, rows)
    # Rows of which one begins the other, and rows that share nothing.
    pairs.append(TokenPair(rows[0], [5, 6, 7, 8], [5, 6, 7, 8, 9, 10]))
    pairs.append(TokenPair(rows[1], [9, 6, 7], [5, 6, 7, 8]))
    return pairs


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("pooling", list(POOLINGS))
def test_loss_and_gradients_are_those_of_trl(
    pooling: PoolingName, lora: int, tiny_policy: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    found = []
    for shares in (True, False):
        config = RewardModelConfig(
            pooling=pooling, margins=True, lora_rank=lora, share_prefix=shares,
            group_by_length=False, batch_size=8,
        )  # fmt: skip
        torch.manual_seed(0)
        model = load_scoring_model(tiny_policy, pooling)
        journal = Journal(tmp_path / f"{shares}")
        trainer = reward_trainer(config, model, tokenizer, pairs_of(tokenizer), journal)
        collator = PairCollator if shares else DataCollatorForPreference
        assert isinstance(trainer.data_collator, collator)
        batch = trainer.data_collator(list(trainer.train_dataset))
        trainer.model.eval()
        loss, outputs = trainer.compute_loss(trainer.model, batch, return_outputs=True)
        loss.backward()
        gradients = {
            name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None
        }
        found.append((loss.detach(), outputs.logits.detach(), gradients, shared_share(trainer)))
    (loss, scores, gradients, share), (expected, plain, wanted, none) = found
    assert share > 0.3
    assert none == 0
    assert torch.allclose(loss, expected, atol=1e-5, rtol=1e-5)
    assert torch.allclose(scores, plain, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        scale = max(1.0, float(wanted[name].abs().max()))
        assert torch.allclose(gradient, wanted[name], atol=1e-5 * scale, rtol=1e-5), name


def test_a_packed_row_by_hand() -> None:
    packed = Packed.of([([1, 2, 3, 4], [1, 2, 5]), ([7, 9], [8, 9])], pad=0)
    assert packed.ids_PT.tolist() == [[1, 2, 3, 4, 5], [7, 9, 8, 9, 0]]
    assert packed.positions_PT.tolist() == [[0, 1, 2, 3, 2], [0, 1, 0, 1, 0]]
    assert packed.parts_PT.tolist() == [[0, 0, 1, 1, 2], [1, 1, 2, 2, -1]]
    sees = visible(packed.parts_PT)[0, 0].int().tolist()
    assert sees == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_each_side_keeps_a_token_of_its_own() -> None:
    assert common_length([[1, 2, 3], [1, 2, 3]]) == 2
    assert common_length([[1, 2], [1, 2, 3]]) == 1
    assert common_length([[1], [2]]) == 0


def test_models_that_would_not_heed_the_mask_do_without(tiny_policy: Path) -> None:
    model = load_scoring_model(tiny_policy)
    assert can_share(model)
    for name, value in {
        "_attn_implementation": "eager",
        "layer_types": ["full_attention", "sliding_attention"],
        "is_causal": False,
    }.items():
        other = load_scoring_model(tiny_policy)
        setattr(other.config, name, value)
        assert not can_share(other), name


@pytest.mark.parametrize("pooling", list(POOLINGS))
def test_a_prompts_responses_score_as_they_do_alone(
    pooling: PoolingName, tiny_policy: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    torch.manual_seed(0)
    judge = RewardModelJudge(load_scoring_model(tiny_policy, pooling), tokenizer)
    prompts = ["What is 1 + 1?"] * 20 + ["Say yes.", "Say no.", "Say no."]
    responses = [f"it is {number % 18}" for number in range(20)] + ["yes", "no", "n"]
    together = judge.score(prompts, responses)
    alone = [judge.score([p], [r])[0] for p, r in zip(prompts, responses, strict=True)]
    assert together == pytest.approx(alone, abs=1e-4)
    assert together[0] == together[18]


def test_what_exceeds_the_context_has_no_score(tiny_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    judge = RewardModelJudge(load_scoring_model(tiny_policy, "last"), tokenizer)
    found = judge.score(["a", "a", "b"], ["x", "y " * 600, "z"])
    assert [math.isnan(score) for score in found] == [False, True, False]
