"""Reward gates: the parts of a rollout's reward in, its reward out.

To add one, write the function, name its paper in the docstring, and add a line to REWARD_GATES.
"""

from collections.abc import Callable, Mapping

Gate = Callable[..., float]


def weighted_sum(parts: Mapping[str, float], weights: Mapping[str, float], /) -> float:
    """Each part times its weight, 1 where none is given."""
    return sum(weights.get(name, 1.0) * value for name, value in parts.items())


REWARD_GATES: dict[str, Gate] = {"weighted_sum": weighted_sum}
