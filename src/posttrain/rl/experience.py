"""From drawn groups to what the update learns from, with every rollout accounted for.

generated = used + dropped + pending, and each drop has a reason:
`bad_reward` (a reward of the group is not finite: it would poison the group's mean),
`zero_signal` (all advantages of the group are zero, and there is no KL term to learn from),
`truncated` (masked because `mask_truncated` is on), `stale` (older than the controller allows),
and what an estimator says of the rollouts that it leaves out.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Estimate, Scored
from posttrain.rl.transforms import Transform


class Draw(NamedTuple):
    """The groups of one step: those that count in the update, all that were finished in it."""

    counted: list[Group]
    generated: list[Group]
    dropped: Counter[str]
    metrics: dict[str, float]

    @classmethod
    def empty(cls) -> Self:
        """Nothing yet."""
        return cls([], [], Counter(), {})


class Lesson(NamedTuple):
    """A rollout of the step's `group`-th group with its advantage, one or one per token.

    `learn` False: its gradient is zero, so it costs no forward pass, but it counts in the
    means of the loss. `entropy_weight`: as in `Estimate`, all of the bonus where empty.
    """

    rollout: Rollout
    group: int
    advantage: tuple[float, ...]
    learn: bool
    entropy_weight: tuple[float, ...] = ()

    def state(self) -> list[Any]:
        """As JSON, for a checkpoint."""
        return [self.rollout.state(), *self[1:]]

    @classmethod
    def restored(cls, state: Sequence[Any]) -> Self:
        """What `state` was taken of."""
        rollout, group, advantage, learn, weight = state
        return cls(Rollout.restored(rollout), group, tuple(advantage), learn, tuple(weight))


def collect(draw: Callable[[int, int], list[Group]], wanted: int, max_draws: int) -> Draw:
    """Draw `wanted` groups by `draw(attempt, count)`.

    With `max_draws` > 1 this is DAPO's dynamic sampling (arXiv:2503.14476): groups whose rewards
    are all equal do not count, and others are drawn in their place, up to `max_draws` times.
    """
    found = Draw.empty()
    for attempt in range(max_draws):
        for group in draw(attempt, wanted - len(found.counted)):
            found.generated.append(group)
            why = unusable(group, silent=max_draws > 1)
            if why:
                found.dropped[why] += own(group)
            else:
                found.counted.append(group)
        if len(found.counted) == wanted:
            break
    return found


def sieve(found: Draw, groups: Sequence[Group], *, silent: bool) -> list[Group]:
    """The groups that count, all of them entered as generated and the others as dropped."""
    usable = []
    for group in groups:
        found.generated.append(group)
        why = unusable(group, silent=silent)
        if why:
            found.dropped[why] += own(group)
        else:
            usable.append(group)
    return usable


def own(group: Group) -> int:
    """How many of its responses the policy wrote."""
    return sum(rollout.source != "external" for rollout in group)


def unusable(group: Group, *, silent: bool) -> str | None:
    """Why a group does not count; `silent`: one without signal does not."""
    rewards = {rollout.reward for rollout in group}
    if not all(map(math.isfinite, rewards)):
        return "bad_reward"
    return "zero_signal" if silent and len(rewards) == 1 else None


def lessons(
    scored: Scored,
    estimate: Estimate,
    dropped: Counter[str],
    *,
    keep_silent: bool,
    mask_truncated: bool,
) -> list[Lesson]:
    """Say which rollouts have a gradient; counts the others as dropped.

    Masked rollouts are left out, of the loss's means too; silent ones stay in them, so that
    skipping their forward pass changes nothing. `keep_silent`: they have one (a KL term).
    """
    made: list[Lesson] = []
    at = 0
    for number, group in enumerate(scored.groups):
        places = range(at, at + len(group))
        at += len(group)
        rows = [tuple(estimate.advantages[i].tolist()) for i in places]
        loud = keep_silent or any(map(any, rows))
        for place, rollout, advantage in zip(places, group, rows, strict=True):
            cut = mask_truncated and rollout.truncated
            why = "truncated" if cut else estimate.dropped.get(place)
            if why:
                dropped[why] += rollout.source != "external"
                continue
            weights = estimate.entropy_weights
            weight = tuple(weights[place].tolist()) if weights else ()
            made.append(Lesson(rollout, number, advantage, loud, weight))
            dropped["zero_signal"] += not loud and rollout.source != "external"
    return made


def estimated(
    scored: Scored, advantage: Callable[[Scored], Estimate], transforms: Sequence[Transform]
) -> Estimate:
    """The advantages, each transform applied in turn."""
    if not scored.groups:
        return Estimate([])
    estimate = advantage(scored)
    for transform in transforms:
        estimate = transform(estimate, scored)
    return estimate
