"""Optimiser hooks: what an update knows in, a factor of its learning rate out.

To add one, write the function, name its paper in the docstring, and add a line to
OPTIMIZER_HOOKS.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class UpdateFacts(NamedTuple):
    """`log_weights_B`: per completion, the log of its chance now over its chance when it was
    drawn, summed over tokens; `completions`: all that count, learnt from or not."""

    log_weights_B: Tensor
    completions: int


Hook = Callable[..., float]


def sqrt_batch_lr(facts: UpdateFacts, /, *, reference: int = 128) -> float:
    """sqrt(completions / reference), for a batch that grew (BroRL, arXiv:2510.01180)."""
    return math.sqrt(facts.completions / reference)


OPTIMIZER_HOOKS: dict[str, Hook] = {"sqrt_batch_lr": sqrt_batch_lr}
