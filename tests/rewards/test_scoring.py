"""Whatever a reward function does, the other rollouts keep their rewards and the run goes on."""

import math
import time
from collections.abc import Callable, Sequence

import pytest

from posttrain.errors import Fault, TransientError
from posttrain.records import Prompt
from posttrain.rewards.scoring import score
from posttrain.rl.rollout import Group, Rollout

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")
SECONDS = 0.2


def groups_of(*sizes: int) -> list[Group]:
    """Rollouts that are numbered in their text."""
    numbers = iter(range(sum(sizes)))
    return [
        tuple(Rollout(PROMPT, str(next(numbers)), (1,), (0.0,), False) for _ in range(size))
        for size in sizes
    ]


def sound(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    return [float(rollout.text) for rollout in rollouts]


def raises_on_two(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    if any(rollout.text == "2" for rollout in rollouts):
        raise ZeroDivisionError("two")
    return sound(rollouts, None)


def raises(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    raise KeyError("always")


def one_too_few(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    return sound(rollouts, None)[1:]


def three(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    return [1.0, 2.0, 3.0]


def no_numbers(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    return [None for _ in rollouts]  # type: ignore[misc]


def not_finite(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    odd = {"1": math.nan, "3": math.inf}
    return [odd.get(rollout.text, float(rollout.text)) for rollout in rollouts]


def hangs(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    time.sleep(30)
    return sound(rollouts, None)


def hangs_alone(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """Fails on all together, and on the third by itself it never ends."""
    if len(rollouts) > 1:
        raise ValueError("one at a time")
    if rollouts[0].text == "2":
        time.sleep(30)
    return sound(rollouts, None)


Reward = Callable[..., list[float]]
EVERY = frozenset(range(5))


@pytest.mark.parametrize(
    ("reward", "lost"),
    [
        (sound, frozenset()),
        (raises_on_two, {2}),
        (raises, EVERY),
        (one_too_few, EVERY),
        (three, EVERY),
        (no_numbers, EVERY),
        (not_finite, {1, 3}),
        (hangs, EVERY),
        (hangs_alone, {2, 3, 4}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_reward_that_fails_costs_the_rollouts_it_fails_on(
    reward: Reward, lost: frozenset[int]
) -> None:
    began = time.monotonic()
    scored = score(groups_of(3, 2), {"odd": reward, "sound": sound}, {}, None, seconds=SECONDS)
    assert time.monotonic() - began < 10 * SECONDS
    assert [len(group) for group in scored] == [3, 2]
    rollouts = [rollout for group in scored for rollout in group]
    assert {n for n, r in enumerate(rollouts) if not math.isfinite(r.reward)} == lost
    for number, rollout in enumerate(rollouts):
        assert rollout.reward_parts["sound"] == number
        if number not in lost:
            assert rollout.reward == 2 * number


def test_without_a_limit_of_time_the_work_is_done_here() -> None:
    import threading

    seen: list[threading.Thread] = []

    def here(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        seen.append(threading.current_thread())
        return sound(rollouts, None)

    score(groups_of(2), {"here": here}, {}, None)
    assert seen == [threading.current_thread()]


def test_what_is_no_failure_of_a_reward_is_not_swallowed() -> None:
    def stop(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        raise KeyboardInterrupt

    for seconds in (SECONDS, math.inf):
        with pytest.raises(KeyboardInterrupt):
            score(groups_of(1), {"stop": stop}, {}, None, seconds=seconds)


def test_a_machine_that_is_taken_away_is_no_bad_reward() -> None:
    def preempted(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        raise TransientError(Fault("preempted", "SIGTERM", "going", "run it again"))

    with pytest.raises(TransientError):
        score(groups_of(2), {"part": preempted}, {}, None)


def test_no_groups_no_work() -> None:
    assert score([], {"sound": sound}, {}, None, seconds=SECONDS) == []
    assert score([()], {"sound": sound}, {}, None) == [()]


def test_parts_and_weights_meet_in_the_gate() -> None:
    def product(parts: dict[str, float], weights: dict[str, float], /) -> float:
        return parts["sound"] * parts["twice"] * weights["twice"]

    def twice(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        return [2 * value for value in sound(rollouts, None)]

    parts = {"sound": sound, "twice": twice}
    scored = score(groups_of(1, 3), parts, {"twice": 0.5}, None, product)
    assert [[r.reward for r in group] for group in scored] == [[0.0], [1.0, 4.0, 9.0]]
