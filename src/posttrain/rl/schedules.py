"""Schedules: the step and the number of steps in, the share of the peak learning rate out; and
TURNS, the most pieces that a response may have at a step.

The first `warmup_steps` rise linearly, and the first of them is not zero. To add a schedule,
write the function and a line in its dict.
"""

import math
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, PositiveInt

Schedule = Callable[..., float]


def constant(step: int, steps: int, /, *, warmup_steps: int = 0) -> float:
    """The peak all along."""
    return min(1.0, (step + 1) / (warmup_steps + 1))


def linear(step: int, steps: int, /, *, warmup_steps: int = 0, floor: float = 0.0) -> float:
    """From the peak straight down to `floor`."""
    if step < warmup_steps:
        return constant(step, steps, warmup_steps=warmup_steps)
    return floor + (1 - floor) * (1 - _done(step, steps, warmup_steps))


def cosine(step: int, steps: int, /, *, warmup_steps: int = 0, floor: float = 0.0) -> float:
    """From the peak down to `floor` along half a cosine (arXiv:1608.03983, no restarts)."""
    if step < warmup_steps:
        return constant(step, steps, warmup_steps=warmup_steps)
    return floor + (1 - floor) * (1 + math.cos(math.pi * _done(step, steps, warmup_steps))) / 2


def _done(step: int, steps: int, warmup_steps: int) -> float:
    return min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))


SCHEDULES: dict[str, Schedule] = {"constant": constant, "linear": linear, "cosine": cosine}

Turns = Callable[..., int]


def fixed(_step: int, /, *, turns: int = 8) -> int:
    """As many all along."""
    return turns


def scaling_inter(
    step: int,
    /,
    *,
    stages: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (10, 20, 30),
    every: PositiveInt = 100,
) -> int:
    """stages[step // every], the last one from then on (ScalingInter-RL, arXiv:2509.08755).

    The first step is 0, so each stage lasts `every` steps; upstream counts from 1 and leaves its
    first stage a step earlier. The defaults are TextCraft's and SciWorld's; BabyAI has [6, 13,
    20], SearchQA [5, 8, 10], WebArena [8, 12, 15] with `every` 80.
    """
    return stages[min(step // every, len(stages) - 1)]


TURNS: dict[str, Turns] = {"fixed": fixed, "scaling_inter": scaling_inter}
