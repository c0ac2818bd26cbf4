"""Laws that every schedule keeps, and its values by hand."""

from typing import Any

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.rl.schedules import SCHEDULES, TURNS


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 3, 50])
def test_between_zero_and_one_and_never_idle_at_first(name: str, warmup: int) -> None:
    values = [SCHEDULES[name](step, 20, warmup_steps=warmup) for step in range(20)]
    assert all(0 <= value <= 1 for value in values)
    assert all(value > 0 for value in values)


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_rises_by_equal_steps_to_the_peak(name: str) -> None:
    values = [SCHEDULES[name](step, 20, warmup_steps=3) for step in range(4)]
    assert values == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_by_hand() -> None:
    assert [SCHEDULES["constant"](s, 4) for s in range(4)] == [1, 1, 1, 1]
    assert [SCHEDULES["linear"](s, 4) for s in range(4)] == [1, 0.75, 0.5, 0.25]
    assert SCHEDULES["linear"](2, 4, floor=0.2) == pytest.approx(0.6)
    assert SCHEDULES["cosine"](2, 4) == pytest.approx(0.5)
    assert SCHEDULES["cosine"](1, 4) == pytest.approx(0.853553)


@pytest.mark.parametrize("name", TURNS)
def test_a_response_may_always_have_a_piece(name: str) -> None:
    allowed = [TURNS[name](step) for step in range(0, 1000, 7)]
    assert all(isinstance(turns, int) and turns >= 1 for turns in allowed)


def test_scaling_inter_by_hand() -> None:
    allowed = [TURNS["scaling_inter"](step) for step in (0, 99, 100, 199, 200, 250, 10_000)]
    assert allowed == [10, 10, 20, 20, 30, 30, 30]
    web_arena = build(
        TURNS,
        Plugin.model_validate({"name": "scaling_inter", "stages": [8, 12, 15], "every": 80}),
    )
    assert [web_arena(step) for step in (79, 80, 160)] == [8, 12, 15]


def test_scaling_inter_of_one_stage_is_fixed() -> None:
    for step in (0, 99, 100, 500):
        assert TURNS["scaling_inter"](step, stages=(8,)) == TURNS["fixed"](step)


@pytest.mark.parametrize("options", [{"stages": []}, {"stages": [0]}, {"every": 0}])
def test_bad_stages_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build(TURNS, Plugin(name="scaling_inter", options=options))
