"""Laws that every schedule keeps, and its values by hand."""

import pytest

from posttrain.rl.schedules import SCHEDULES


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
