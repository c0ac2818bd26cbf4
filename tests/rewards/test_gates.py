"""Gates make one number of the parts, by hand."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.rewards.gates import REWARD_GATES, weighted_sum


@pytest.mark.parametrize("name", REWARD_GATES)
@pytest.mark.parametrize("outcome", [-1.0, 0.0, 0.5, 1.0])
def test_the_outcome_alone_is_the_reward(name: str, outcome: float) -> None:
    assert REWARD_GATES[name]({"verifier": outcome}, {}) == outcome
    assert REWARD_GATES[name]({"verifier": outcome}, {"verifier": 2.0}) == 2 * outcome


@pytest.mark.parametrize("name", REWARD_GATES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_outcome_that_is_no_number_stays_one(name: str, bad: float) -> None:
    assert not math.isfinite(REWARD_GATES[name]({"verifier": bad, "format": 1.0}, {}))


@pytest.mark.parametrize(
    ("outcome", "tau", "expected"),
    [(0.0, 0.0, 0.0), (1.0, 0.0, 1.5), (0.4, 0.5, 0.4), (0.5, 0.5, 0.5), (0.6, 0.5, 1.1),
     (0.0, -1.0, 0.5), (-1.0, 0.0, -1.0)],
)  # fmt: skip
def test_gra_by_hand(outcome: float, tau: float, expected: float) -> None:
    """R = R_H + 1[R_H > tau] * 0.5."""
    gate = build(REWARD_GATES, Plugin(name="gra", options={"tau": tau}))
    parts = {"verifier": outcome, "format": 0.3, "brevity": 0.2}
    assert gate(parts, {}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"tests": 1.0, "builds": 1.0, "edits": 1.0, "style": 0.5}, 1 + 1 + 0.5 + 0.5),
        ({"tests": 1.0, "builds": 1.0, "edits": 0.0, "style": 0.5}, 1 + 1 + 0),
        ({"tests": 1.0, "builds": 0.0, "edits": 1.0, "style": 0.5}, 1 + 0),
        ({"tests": 0.0, "builds": 1.0, "edits": 1.0, "style": 0.5}, 0),
    ],
)
def test_nested_priorities_by_hand(parts: Mapping[str, float], expected: float) -> None:
    options: dict[str, Any] = {"outcome": "tests", "priorities": ["builds", "edits"]}
    gate = build(REWARD_GATES, Plugin(name="gra", options=options))
    assert gate(parts, {"edits": 0.5}) == pytest.approx(expected)


def test_an_open_gate_is_the_weighted_sum() -> None:
    gate = build(REWARD_GATES, Plugin(name="gra", options={"tau": -math.inf}))
    parts, weights = {"verifier": 0.2, "format": -0.4, "overlong": 0.7}, {"format": 0.5}
    assert gate(parts, weights) == pytest.approx(weighted_sum(parts, weights))


def test_an_exploit_of_a_lesser_part_pays_only_without_the_gate() -> None:
    hack, honest = {"verifier": 0.0, "format": 3.0}, {"verifier": 1.0, "format": 0.0}
    assert weighted_sum(hack, {}) > weighted_sum(honest, {})
    assert REWARD_GATES["gra"](hack, {}) < REWARD_GATES["gra"](honest, {})


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean `tau`"):
        build(REWARD_GATES, Plugin(name="gra", options={"taw": 0.1}))
