"""Scoring: groups in, the same groups with rewards out, whatever a reward function does.

A reward that raises or hangs costs the rollouts it fails on and not the run: they get NaN, which
drops their group as `bad_reward`. A fault that has a message for the user passes, and so does the
news that the machine is being taken away.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from posttrain.errors import PosttrainError
from posttrain.reward_model.protocol import Judge
from posttrain.rewards import Reward
from posttrain.rewards.gates import Gate, weighted_sum
from posttrain.rl.rollout import Group, Rollout

log = logging.getLogger(__name__)


def score(
    groups: Sequence[Group],
    rewards: Mapping[str, Reward],
    weights: Mapping[str, float],
    judge: Judge | None,
    gate: Gate = weighted_sum,
    seconds: float = math.inf,
) -> list[Group]:
    """Reward every rollout by what the gate makes of its parts, each of which has `seconds`."""
    rollouts = [rollout for group in groups for rollout in group]
    parts = {name: safely(name, part, rollouts, judge, seconds) for name, part in rewards.items()}
    scored = []
    for index, rollout in enumerate(rollouts):
        own = {name: values[index] for name, values in parts.items()}
        scored.append(rollout.rewarded(own, gate(own, weights)))
    ends = iter(scored)
    return [tuple(next(ends) for _ in group) for group in groups]


def safely(
    name: str, reward: Reward, rollouts: Sequence[Rollout], judge: Judge | None, seconds: float
) -> list[float]:
    """The values of one part; NaN for each rollout on which it fails.

    A part that fails on all of them together is asked about each alone, in the time that is left.
    """
    ends = time.monotonic() + seconds

    def values(rows: Sequence[Rollout]) -> list[float]:
        found = [float(value) for value in reward(rows, judge)]
        if len(found) != len(rows):
            raise ValueError(f"{len(found)} rewards for {len(rows)} rollouts")
        return found

    try:
        return within(seconds, lambda: values(rollouts))
    except PosttrainError:
        raise
    except TimeoutError:
        log.warning("reward `%s` took more than %g s for %d rollouts", name, seconds, len(rollouts))
        return [math.nan] * len(rollouts)
    except Exception as error:  # the one boundary for bad rollouts: a failed one is data
        log.warning("reward `%s`: %s: %s", name, type(error).__name__, error)
        if len(rollouts) == 1:
            return [math.nan]
    return [
        safely(name, reward, [rollout], judge, ends - time.monotonic())[0] for rollout in rollouts
    ]


def within(seconds: float, work: Callable[[], list[float]]) -> list[float]:
    """The result of the work, or TimeoutError; a thread that hangs is left behind."""
    if seconds == math.inf:
        return work()
    if seconds <= 0:
        raise TimeoutError
    done: list[list[float]] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            done.append(work())
        except BaseException as error:  # handed to the caller's thread
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not done:
        raise TimeoutError
    return done[0]
