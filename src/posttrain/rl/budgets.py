"""Budget planners: the groups so far in, how many more rollouts each prompt gets out.

A planner is asked again after each round, until it wants no more; groups begin empty. To add
one, write the function, name its paper in the docstring, and add a line to BUDGETS.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import PositiveInt

from posttrain.rl.rollout import Group

Budget = Callable[..., list[int]]


def fixed(groups: Sequence[Group], group_size: int, /) -> list[int]:
    """`group_size` rollouts for every prompt, in one round."""
    return [group_size - len(group) for group in groups]


def dars(
    groups: Sequence[Group],
    group_size: int,
    /,
    *,
    mode: Literal["et", "hw"] = "et",
    std: bool = False,
    most: PositiveInt | None = None,
    threshold: float = 0.5,
) -> list[int]:
    """`group_size` rollouts first, then more of what was rarely solved (DARS, arXiv:2508.13755).

    Prompts solved in less than half of the first get one more round, so that the absolute
    advantages of a hard group sum to those of one half solved. `et`, equal treatment; `hw`,
    hardness-weighted: the harder, the more. `std`: the advantages are divided by their deviation. A
    group has `most` at the end, by default 32 for `et` and 64 for `hw`. Solved is a reward of at
    least `threshold` (ours). Only what the policy wrote counts.
    """
    cap = most or {"et": 32, "hw": 64}[mode]

    def more(group: Group) -> int:
        own = [rollout.reward for rollout in group if rollout.source != "external"]
        if len(group) != group_size or not own or not all(map(math.isfinite, own)):
            return max(0, group_size - len(group))
        accuracy = sum(reward >= threshold for reward in own) / len(own)
        wanted = missing(accuracy, group_size, hardness=mode == "hw", std=std)
        return min(wanted, max(0, cap - group_size))

    return [more(group) for group in groups]


def missing(accuracy: float, size: int, *, hardness: bool, std: bool) -> int:
    """How many rollouts a group of `size` lacks to the advantage mass of one half solved.

    A rollout brings S = 2a(1-a), or 2 sqrt(a(1-a)) with `std`; the mass wanted is P = S(1/2) *
    size, times 2(1-a) for `hardness`. An accuracy of 0 counts as half a solution.
    """
    accuracy = accuracy or 0.5 / size
    if accuracy >= 0.5:
        return 0
    variance = accuracy * (1 - accuracy)
    each, peak = (2 * variance**0.5, 1.0) if std else (2 * variance, 0.5)
    goal = peak * size * (2 * (1 - accuracy) if hardness else 1.0)
    # A quotient that is whole but for rounding must not gain a rollout.
    return math.ceil((goal - size * each) / each - 1e-9)


BUDGETS: dict[str, Budget] = {"fixed": fixed, "dars": dars}
