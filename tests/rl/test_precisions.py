"""Rounding to E4M3 by hand; one number format in both roles leaves no gap, two leave one."""

from pathlib import Path

import pytest
import torch
from torch import nn

from posttrain.engines import Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.plugins import Plugin, build
from posttrain.policies import load_policy
from posttrain.records import Prompt
from posttrain.rl.config import RLConfig
from posttrain.rl.experience import Lesson
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES
from posttrain.rl.precisions import PRECISIONS, fake_e4m3, straight_through
from posttrain.rl.rollout import Rollout

IDS_BT = torch.arange(4, 68).reshape(2, 32)


def logps(model: nn.Module, name: str, role: str) -> torch.Tensor:
    with PRECISIONS[name](model, role), torch.no_grad():
        return model(IDS_BT).logits.log_softmax(-1)


def test_rounding_of_the_published_example() -> None:
    """amax 4.48: the scale is .01, so 1.0 is 100, a tie that goes to the even 96: .96."""
    found = fake_e4m3(torch.tensor([[4.48, 1.0, -1.0, 0.0]]), 1, 128)
    assert found.tolist() == [pytest.approx([4.48, 0.96, -0.96, 0.0])]


def test_each_block_has_its_own_scale() -> None:
    """Two columns a block: 1.0 is exact beside itself, and .96 beside 4.48."""
    values = torch.tensor([[4.48, 1.0, 1.0, 1.0, 1.0]])
    assert fake_e4m3(values, 1, 2)[0].tolist() == pytest.approx([4.48, 0.96, 1, 1, 1])
    square = torch.tensor([[1.0, 1.0, 1.0], [4.48, 1.0, 1.0], [1.0, 1.0, 1.0]])
    expected = [[0.96, 0.96, 1], [4.48, 0.96, 1], [1, 1, 1]]
    assert fake_e4m3(square, 2, 2).tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (2, 0, 5), (3, 130), (2, 2, 129)])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_rounding_is_finite_close_and_stable(shape: tuple[int, ...], scale: float) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * scale
    found = fake_e4m3(values, 1, 128)
    assert found.shape == values.shape
    assert ((found - values).abs() <= values.abs() / 16 + scale * 0.01).all()
    assert torch.allclose(fake_e4m3(found, 1, 128), found, rtol=1e-6)


def test_the_gradient_goes_straight_through() -> None:
    values = torch.tensor([[4.48, 1.0]], requires_grad=True)
    found = straight_through(values, fake_e4m3(values, 1, 128))
    (found * torch.tensor([[2.0, 3.0]])).sum().backward()
    assert values.grad.tolist() == [[2.0, 3.0]]
    assert torch.equal(found, fake_e4m3(values, 1, 128))


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_model_is_left_as_it_was(tiny_policy: Path, name: str) -> None:
    model = load_policy(tiny_policy).model
    before = {key: value.clone() for key, value in model.state_dict().items()}
    expected = logps(model, "native", "train")
    for role in ("rollout", "train"):
        logps(model, name, role)
        with pytest.raises(KeyError), PRECISIONS[name](model, role):
            raise KeyError
    assert torch.equal(logps(model, "native", "train"), expected)
    assert not any("forward" in vars(module) for module in model.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_forward_of_ones_own_comes_back() -> None:
    layer = nn.Linear(2, 2)
    layer.forward = mine = lambda given: given * 2
    with PRECISIONS["unified_fp8"](layer, "train"):
        assert layer.forward is not mine
    assert layer.forward is mine


def test_other_models_are_not_touched(tiny_policy: Path) -> None:
    mine, other = load_policy(tiny_policy).model, load_policy(tiny_policy).model
    expected = logps(other, "native", "train")
    with PRECISIONS["unified_fp8"](mine, "train"):
        assert torch.equal(logps(other, "native", "train"), expected)


def test_the_roles_agree_in_unified_and_not_in_mixed(tiny_policy: Path) -> None:
    model = load_policy(tiny_policy).model
    gaps = {
        name: (logps(model, name, "rollout") - logps(model, name, "train")).abs().max().item()
        for name in PRECISIONS
    }
    assert gaps["native"] == gaps["unified_fp8"] == 0
    assert gaps["mixed_fp8"] > 1e-3
    assert torch.equal(logps(model, "mixed_fp8", "train"), logps(model, "native", "train"))


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_weight_gets_a_gradient(tiny_policy: Path, name: str) -> None:
    model = load_policy(tiny_policy).model
    with PRECISIONS[name](model, "train"):
        loss = model(IDS_BT).logits.square().mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def drawn_and_learnt(folder: Path, name: str) -> float:
    """Mean gap of drawn and trained log-probs in the learner's first update."""
    precision = build(PRECISIONS, Plugin(name=name))
    config = RLConfig(max_new_tokens=24, learning_rate=1e-9)
    learner = Learner(config, folder, POLICY_LOSSES["clip"], (), precision)
    engine = TransformersEngine(learner.policy)
    prompt = Prompt(id="1", text="2+3=", answer="5", task="arithmetic", source="test")
    with precision(learner.model, "rollout"):
        drawn = engine.generate([prompt.text], Sampling(samples=8, max_new_tokens=24))[0]
    lessons = [
        Lesson(Rollout(prompt, c.text, c.tokens, c.logps, c.truncated), 0, (1.0,), True)
        for c in drawn
    ]
    return learner.update(lessons, 1e-9)["mismatch/mean"]


def test_drawn_and_trained_log_probs_through_engine_and_learner(tiny_policy: Path) -> None:
    gaps = {name: drawn_and_learnt(tiny_policy, name) for name in PRECISIONS}
    assert gaps["native"] < 1e-5
    assert gaps["unified_fp8"] < gaps["mixed_fp8"] / 30


@pytest.mark.parametrize("name", PRECISIONS)
def test_what_the_backward_pass_runs_again_is_rounded_again(tiny_policy: Path, name: str) -> None:
    prompt = Prompt(id="1", text="2+3=", answer="5", task="arithmetic", source="test")
    rollout = Rollout(prompt, "", (20, 21, 22), (-6.0,) * 3, truncated=False)
    found = []
    for again in (False, True):
        config = RLConfig(learning_rate=1e-9, gradient_checkpointing=again)
        precision = build(PRECISIONS, Plugin(name=name))
        learner = Learner(config, tiny_policy, POLICY_LOSSES["clip"], (), precision)
        learner.update([Lesson(rollout, 0, (1.0,), True)], 1e-9)
        moments = {k: v for k, v in learner.tensors().items() if k.endswith("/exp_avg")}
        found.append(torch.cat([value.flatten() for value in moments.values()]))
    assert found[0].norm() > 0
    assert torch.allclose(*found, atol=1e-8)
