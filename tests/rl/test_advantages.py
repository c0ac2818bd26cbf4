"""Laws that every advantage estimator keeps, and one worked example of each."""

import math

import pytest
import torch

from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Estimate, Scored, Values

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")
LENGTHS = (1, 3, 2)


class Still:
    """A policy that is where it was, and all of whose gradients are alike."""

    def logps(self, rollouts: list[Rollout]) -> list[torch.Tensor]:
        return [torch.tensor(rollout.behaviour_logps).double() for rollout in rollouts]

    reference_logps = logps

    def gradient_norms(self, rollouts: list[Rollout]) -> list[float]:
        return [1.0 for _ in rollouts]


def group(*rewards: float) -> Group:
    """Responses of one to three tokens."""
    lengths = [LENGTHS[i % 3] for i in range(len(rewards))]
    return tuple(
        Rollout(PROMPT, "", (1,) * n, (-1.0,) * n, False, reward=reward)
        for n, reward in zip(lengths, rewards, strict=True)
    )


def scored(*rewards: list[float]) -> Scored:
    """Groups with these rewards; the critic, where asked, expects 0.5 everywhere."""
    groups = [group(*each) for each in rewards]
    flat = [torch.full((len(r.tokens),), 0.5).double() for g in groups for r in g]
    return Scored(groups, values=Values(flat, [torch.zeros_like(v) for v in flat]), policy=Still())


def estimate(name: str, given: Scored, **options: object) -> Estimate:
    return build(ADVANTAGES, Plugin(name=name, options=options))(given)


def numbers(found: Estimate) -> list[float]:
    """The advantage of each rollout's first token."""
    return [float(advantage[0]) for advantage in found.advantages]


CRITICAL = {"gae"}
"""Estimators that compare with a critic, and not within a group."""

WHOLE_BATCH = {"lite_ppo", "reinforce_pp", *CRITICAL}
"""Estimators that look beyond the group."""


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - CRITICAL))
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3, 1e8])
@pytest.mark.parametrize("group_size", [1, 2, 3, 8])
def test_all_equal_rewards_give_exact_zeros(name: str, value: float, group_size: int) -> None:
    found = estimate(name, scored(*[[value] * group_size] * 3))
    assert all((advantage == 0).all() for advantage in found.advantages)


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_finite_one_for_each_rollout_or_token(name: str, group_size: int) -> None:
    rewards = torch.rand(4, group_size, generator=torch.Generator().manual_seed(0)).tolist()
    given = scored(*rewards)
    found = estimate(name, given)
    assert len(found.advantages) == 4 * group_size
    for advantage, rollout in zip(found.advantages, given.rollouts, strict=True):
        assert advantage.isfinite().all()
        assert len(advantage) in (1, len(rollout.tokens))
    assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - WHOLE_BATCH))
def test_other_groups_change_nothing(name: str) -> None:
    alone = estimate(name, scored([0.0, 0.25, 1.0]))
    beside = estimate(name, scored([0.0, 0.25, 1.0], [1.0, 1.0, 0.0]))
    assert numbers(beside)[:3] == numbers(alone)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_a_better_reward_never_gets_a_lower_advantage(name: str) -> None:
    found = torch.tensor(numbers(estimate(name, scored([0.0, 0.25, 0.5, 1.0]))))
    assert (found.diff() >= 0).all()
    assert found[-1] > found[0]


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - CRITICAL))
def test_a_shift_of_all_rewards_changes_nothing(name: str) -> None:
    found = numbers(estimate(name, scored([0.0, 0.25, 0.5, 1.0])))
    shifted = numbers(estimate(name, scored([7.0, 7.25, 7.5, 8.0])))
    assert shifted == pytest.approx(found)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_groups_may_differ_in_size(name: str) -> None:
    assert len(estimate(name, scored([1.0], [0.0, 1.0], [1.0, 0.0, 0.0])).advantages) == 6


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", {}, [1.5, -0.5, -0.5, -0.5]),
        ("grpo", {"scale": "population_std"}, [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ("grpo", {"scale": "none"}, [0.75, -0.25, -0.25, -0.25]),
        ("grpo", {"eps": 0.5}, [0.75, -0.25, -0.25, -0.25]),
        ("rloo", {}, [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("dr_grpo", {}, [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_one_of_four_right(name: str, options: dict[str, object], expected: list[float]) -> None:
    found = estimate(name, scored([1.0, 0.0, 0.0, 0.0]), **options)
    assert numbers(found) == pytest.approx(expected, abs=1e-5)
