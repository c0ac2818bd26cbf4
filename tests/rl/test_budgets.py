"""Laws that every budget planner keeps, and what each one wants."""

import math

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.budgets import BUDGETS, missing
from posttrain.rl.rollout import Group, Rollout

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")


def group(*rewards: float) -> Group:
    return tuple(Rollout(PROMPT, "", (1,), (0.0,), False, reward=reward) for reward in rewards)


def solved(right: int, of: int) -> Group:
    return group(*[1.0] * right, *[0.0] * (of - right))


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("reward", [0.0, 1.0, math.nan])
def test_a_budget_begins_with_the_group_size_and_ends(name: str, size: int, reward: float) -> None:
    groups: list[Group] = [(), ()]
    rounds = []
    while any(wanted := BUDGETS[name](groups, size)):
        assert min(wanted) >= 0
        rounds.append(wanted)
        assert len(rounds) < 10
        groups = [old + group(*[reward] * n) for old, n in zip(groups, wanted, strict=True)]
    assert rounds[0] == [size, size]
    assert BUDGETS[name]([], size) == []


def test_dars_by_hand() -> None:
    groups = [solved(2, 8), solved(3, 8), solved(0, 8), solved(4, 8), solved(8, 8)]
    assert BUDGETS["dars"](groups, 8) == [3, 1, 24, 0, 0]
    assert BUDGETS["dars"](groups, 8, mode="hw") == [8, 3, 56, 0, 0]
    assert missing(0.0, 8, hardness=False, std=False) == 27
    assert missing(0.0, 8, hardness=True, std=False) == 56


def test_dars_by_hand_where_advantages_are_divided_by_their_deviation() -> None:
    # a = 1/4: S = 0.866025, so (8 - 6.928203) / S = 1.24 and (12 - 6.928203) / S = 5.86.
    assert missing(0.25, 8, hardness=False, std=True) == 2
    assert missing(0.25, 8, hardness=True, std=True) == 6


@pytest.mark.parametrize("right", [1, 2, 3])
def test_dars_gives_a_hard_group_the_advantages_of_one_half_solved(right: int) -> None:
    def mass(accuracy: float, size: int) -> float:
        return 2 * accuracy * (1 - accuracy) * size

    extra = BUDGETS["dars"]([solved(right, 8)], 8)[0]
    assert mass(right / 8, 8 + extra) >= mass(0.5, 8) > mass(right / 8, 8 + extra - 1)


def test_dars_asks_once_and_stops_at_the_cap() -> None:
    hard = solved(0, 8)
    assert BUDGETS["dars"]([hard], 8, most=12) == [4]
    assert BUDGETS["dars"]([hard + solved(0, 4)], 8, most=12) == [0]
    assert BUDGETS["dars"]([hard + solved(0, 1)], 8) == [0]


def test_dars_at_a_cap_of_the_group_size_is_fixed() -> None:
    for groups in ([(), ()], [solved(0, 8), solved(1, 8)]):
        assert BUDGETS["dars"](groups, 8, most=8) == BUDGETS["fixed"](groups, 8)


def test_dars_counts_only_what_the_policy_wrote() -> None:
    given = Rollout(PROMPT, "", (1,), (0.0,), False, source="external", reward=1.0)
    assert BUDGETS["dars"]([(*solved(0, 7), given)], 8) == [24]
    assert BUDGETS["dars"]([(given,)], 1) == [0]


def test_dars_adds_nothing_to_a_group_that_will_be_dropped() -> None:
    assert BUDGETS["dars"]([group(math.nan, *[0.0] * 7)], 8) == [0]


def test_dars_does_not_round_a_whole_number_up() -> None:
    # a = 2/5: S = 0.48, P = 0.6 * 20, and (12 - 9.6) / 0.48 = 5.
    assert BUDGETS["dars"]([solved(8, 20)], 20, mode="hw") == [5]


def test_dars_takes_a_reward_of_the_threshold_for_solved() -> None:
    groups = [group(*[0.3] * 4, *[0.0] * 4)]
    assert BUDGETS["dars"](groups, 8, threshold=0.3) == [0]
    assert BUDGETS["dars"](groups, 8) == [24]


def test_an_unknown_mode_is_told() -> None:
    with pytest.raises(ConfigError, match="mode"):
        build(BUDGETS, Plugin(name="dars", options={"mode": "harder"}))
