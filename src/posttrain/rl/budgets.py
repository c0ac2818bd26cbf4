"""Budget planners: the groups so far in, how many more rollouts each prompt gets out.

A planner is asked again after each round, until it wants no more; groups begin empty. To add
one, write the function, name its paper in the docstring, and add a line to BUDGETS.
"""

from collections.abc import Callable, Sequence

from posttrain.rl.rollout import Group

Budget = Callable[..., list[int]]


def fixed(groups: Sequence[Group], group_size: int, /) -> list[int]:
    """`group_size` rollouts for every prompt, in one round."""
    return [group_size - len(group) for group in groups]


BUDGETS: dict[str, Budget] = {"fixed": fixed}
