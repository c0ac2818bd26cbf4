"""From drawn groups to what the update learns from, with every rollout accounted for.

generated = used + dropped, and each drop has a reason:
`bad_reward` (a reward of the group is not finite: it would poison the group's mean),
`zero_signal` (all advantages of the group are zero, and there is no KL term to learn from),
`truncated` (masked because `mask_truncated` is on).
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from posttrain.rl.rollout import Group, Rollout


class Draw(NamedTuple):
    """The groups of one step: those that count in the update, all that were generated."""

    counted: list[Group]
    generated: list[Group]
    dropped: Counter[str]


class Lesson(NamedTuple):
    """A rollout of the step's `group`-th group with its advantage.

    `learn` False: its gradient is zero, so it costs no forward pass, but it counts in the
    means of the loss.
    """

    rollout: Rollout
    group: int
    advantage: float
    learn: bool


def collect(draw: Callable[[int, int], list[Group]], wanted: int, max_draws: int) -> Draw:
    """Draw `wanted` groups by `draw(attempt, count)`.

    With `max_draws` > 1 this is DAPO's dynamic sampling (arXiv:2503.14476): groups whose rewards
    are all equal do not count, and others are drawn in their place, up to `max_draws` times.
    """
    found = Draw([], [], Counter())
    for attempt in range(max_draws):
        for group in draw(attempt, wanted - len(found.counted)):
            found.generated.append(group)
            rewards = {rollout.reward for rollout in group}
            if not all(map(math.isfinite, rewards)):
                found.dropped["bad_reward"] += len(group)
            elif max_draws > 1 and len(rewards) == 1:
                found.dropped["zero_signal"] += len(group)
            else:
                found.counted.append(group)
        if len(found.counted) == wanted:
            break
    return found


def lessons(
    drawn: Draw,
    advantage: Callable[[Tensor], Tensor],
    *,
    keep_silent: bool,
    mask_truncated: bool,
) -> list[Lesson]:
    """Estimate advantages and say which rollouts have a gradient; counts the others as dropped.

    Masked rollouts are left out, of the loss's means too; silent ones stay in them, so that
    skipping their forward pass changes nothing. `keep_silent`: they have one (a KL term).
    """
    groups, dropped = drawn.counted, drawn.dropped
    if not groups:
        return []
    rewards_PG = torch.tensor([[r.reward for r in group] for group in groups], dtype=torch.float64)
    advantages_PG = advantage(rewards_PG).tolist()
    made: list[Lesson] = []
    for number, (group, row) in enumerate(zip(groups, advantages_PG, strict=True)):
        loud = keep_silent or any(row)
        for rollout, value in zip(group, row, strict=True):
            if mask_truncated and rollout.truncated:
                dropped["truncated"] += 1
                continue
            made.append(Lesson(rollout, number, value, loud))
            dropped["zero_signal"] += not loud
    return made
