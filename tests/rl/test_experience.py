"""Every rollout is accounted for: generated = used + dropped, each drop with its reason."""

import math
from collections.abc import Callable

import pytest

from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.experience import Draw, Lesson, collect, estimated, lessons
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Scored

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")


def group(*rewards: float, truncated: int = 0) -> Group:
    return tuple(
        Rollout(PROMPT, "", (1,), (0.0,), i < truncated, reward=reward)
        for i, reward in enumerate(rewards)
    )


def drawing(*groups: Group) -> Callable[[int, int], list[Group]]:
    rest = iter(groups)
    return lambda _attempt, count: [next(rest) for _ in range(count)]


def taught(
    drawn: Draw, name: str, *, keep_silent: bool = False, mask_truncated: bool = False
) -> list[Lesson]:
    given = Scored(drawn.counted)
    found = estimated(given, ADVANTAGES[name], [])
    return lessons(
        given, found, drawn.dropped, keep_silent=keep_silent, mask_truncated=mask_truncated
    )


MIXED, SOLVED, BROKEN = group(1, 0), group(1, 1), group(1, math.nan)


@pytest.mark.parametrize("max_draws", [1, 2, 3])
@pytest.mark.parametrize("mask_truncated", [False, True])
@pytest.mark.parametrize("keep_silent", [False, True])
@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - {"gae", "opob"}))
def test_generated_is_used_plus_dropped(
    max_draws: int, mask_truncated: bool, keep_silent: bool, name: str
) -> None:
    half_cut = group(1, 0, truncated=1)
    draw = drawing(MIXED, SOLVED, BROKEN, half_cut, SOLVED, MIXED, BROKEN, MIXED, MIXED)
    drawn = collect(draw, 4, max_draws)
    learnt = taught(drawn, name, keep_silent=keep_silent, mask_truncated=mask_truncated)
    generated = sum(len(each) for each in drawn.generated)
    used = sum(lesson.learn for lesson in learnt)
    assert generated == used + sum(drawn.dropped.values())
    assert drawn.dropped["bad_reward"] > 0
    assert drawn.dropped["truncated"] == mask_truncated


def test_without_redraws_silent_groups_stay_in_the_means() -> None:
    drawn = collect(drawing(MIXED, SOLVED), 2, max_draws=1)
    learnt = taught(drawn, "grpo")
    assert [lesson.learn for lesson in learnt] == [True, True, False, False]
    assert drawn.dropped == {"zero_signal": 2}


def test_dynamic_sampling_redraws_until_full_or_out_of_draws() -> None:
    full = collect(drawing(SOLVED, MIXED, SOLVED, MIXED), 2, max_draws=5)
    assert (len(full.counted), len(full.generated)) == (2, 4)
    short = collect(drawing(*[SOLVED] * 6), 2, max_draws=3)
    assert (len(short.counted), len(short.generated)) == (0, 6)
    assert taught(short, "grpo") == []


def test_advantages_reach_their_rollouts() -> None:
    drawn = collect(drawing(group(1, 0, 0, 0), group(0, 0, 0, 1)), 2, max_draws=1)
    learnt = taught(drawn, "dr_grpo")
    assert [lesson.advantage for lesson in learnt if lesson.rollout.reward] == [(0.75,), (0.75,)]
    assert [lesson.group for lesson in learnt] == [0] * 4 + [1] * 4
