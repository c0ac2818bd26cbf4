"""Factors of the learning rate, by hand and at their limits."""

import math

import pytest
import torch

from posttrain.plugins import Plugin, build
from posttrain.rl.hooks import OPTIMIZER_HOOKS, UpdateFacts


def facts(*weights: float, completions: int = 128) -> UpdateFacts:
    return UpdateFacts(torch.tensor(weights).log(), completions)


def factor(name: str, given: UpdateFacts, **options: object) -> float:
    return build(OPTIMIZER_HOOKS, Plugin(name=name, options=options))(given)


@pytest.mark.parametrize("name", OPTIMIZER_HOOKS)
@pytest.mark.parametrize("count", [0, 1, 2, 128])
def test_on_policy_the_rate_stays(name: str, count: int) -> None:
    assert factor(name, facts(*[1.0] * count)) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", OPTIMIZER_HOOKS)
@pytest.mark.parametrize("logs", [[-1e4, -1e4], [1e4, 1e4], [-1e4, 1e4], [1e4]])
def test_runaway_weights_leave_a_finite_factor(name: str, logs: list[float]) -> None:
    found = factor(name, UpdateFacts(torch.tensor(logs), 128))
    assert 0 < found <= 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0.75593),
        ({"shape": "linear"}, 0.57143),
        ({"base": 0.8}, math.sqrt(0.57143 / 0.8)),
        ({"base": 0.5}, 1.0),
    ],
)
def test_ess_of_the_published_example(options: dict[str, object], expected: float) -> None:
    """Weights 1, 1, 1, 5: 64 / 28 = 2.286 completions of 4 are effective."""
    assert factor("ess_lr", facts(1, 1, 1, 5), **options) == pytest.approx(expected, abs=1e-4)


def test_ess_ignores_the_scale_of_the_weights() -> None:
    assert factor("ess_lr", facts(1, 2)) == pytest.approx(factor("ess_lr", facts(100, 200)))


def test_the_root_of_the_batchs_growth_of_the_published_example() -> None:
    """N from 16 to 512: 1e-6 becomes 5.657e-6."""
    found = factor("sqrt_batch_lr", facts(completions=512), reference=16)
    assert 1e-6 * found == pytest.approx(5.657e-6, rel=1e-4)
