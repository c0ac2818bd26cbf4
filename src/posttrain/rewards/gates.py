"""Reward gates: the parts of a rollout's reward in, its reward out.

To add one, write the function, name its paper in the docstring, and add a line to REWARD_GATES.
"""

from collections.abc import Callable, Mapping, Sequence

Gate = Callable[..., float]


def weighted_sum(parts: Mapping[str, float], weights: Mapping[str, float], /) -> float:
    """Each part times its weight, 1 where none is given."""
    return sum(weights.get(name, 1.0) * value for name, value in parts.items())


def gra(
    parts: Mapping[str, float],
    weights: Mapping[str, float],
    /,
    *,
    outcome: str = "verifier",
    tau: float = 0.0,
    priorities: Sequence[str] = (),
) -> float:
    """Gated reward accumulation: R = R_H + 1[R_H > tau] * (sum of the others) (arXiv:2508.10548).

    `priorities`: parts between the outcome and the others, the highest first; each counts, and
    opens the gate to those below it, only once all above it are over `tau`. Parts are compared
    with `tau` before they are weighted; `tau` 0 assumed.
    """
    total = 0.0
    for name in (outcome, *priorities):
        total += weights.get(name, 1.0) * parts[name]
        if not parts[name] > tau:
            return total
    gated = {outcome, *priorities}
    return total + weighted_sum({k: v for k, v in parts.items() if k not in gated}, weights)


REWARD_GATES: dict[str, Gate] = {"weighted_sum": weighted_sum, "gra": gra}
