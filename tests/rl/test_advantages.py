"""Laws that every advantage estimator keeps, and one worked example of each."""

import pytest
import torch

from posttrain.plugins import Plugin, build
from posttrain.rl.advantages import ADVANTAGES


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3, 1e8])
@pytest.mark.parametrize("group_size", [1, 2, 3, 8])
def test_all_equal_rewards_give_exact_zeros(name: str, value: float, group_size: int) -> None:
    rewards_PG = torch.full((3, group_size), value, dtype=torch.float64)
    assert (ADVANTAGES[name](rewards_PG) == 0).all()


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_finite_and_of_the_same_shape_and_blind_to_other_groups(name: str, group_size: int) -> None:
    rewards_PG = torch.rand(4, group_size, generator=torch.Generator().manual_seed(0)).double()
    advantages_PG = ADVANTAGES[name](rewards_PG)
    assert advantages_PG.shape == rewards_PG.shape
    assert advantages_PG.isfinite().all()
    assert torch.equal(ADVANTAGES[name](rewards_PG[:1]), advantages_PG[:1])


@pytest.mark.parametrize("name", ADVANTAGES)
def test_a_better_reward_never_gets_a_lower_advantage_and_a_shift_changes_nothing(
    name: str,
) -> None:
    rewards_PG = torch.tensor([[0.0, 0.25, 0.5, 1.0]], dtype=torch.float64)
    advantages_PG = ADVANTAGES[name](rewards_PG)
    assert (advantages_PG.diff() > 0).all()
    assert torch.allclose(ADVANTAGES[name](rewards_PG + 7), advantages_PG)
    assert advantages_PG.sum().abs() < 1e-12


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
    estimate = build(ADVANTAGES, Plugin(name=name, options=options))
    found_PG = estimate(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    assert found_PG[0].tolist() == pytest.approx(expected, abs=1e-5)
