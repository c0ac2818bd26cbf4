"""Optimiser hooks: what an update knows in, a factor of its learning rate out.

The factor holds for that update alone. To add a hook, write the function, name its paper in the
docstring, and add a line to OPTIMIZER_HOOKS.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from torch import Tensor


class UpdateFacts(NamedTuple):
    """`log_weights_B`: per completion of the policy's that has a gradient, the log of its chance
    now over its chance when it was drawn, summed over tokens; `completions`: all that count,
    learnt from or not."""

    log_weights_B: Tensor
    completions: int


Hook = Callable[..., float]


def sqrt_batch_lr(facts: UpdateFacts, /, *, reference: Annotated[int, Field(ge=1)] = 128) -> float:
    """sqrt(completions / reference), for a batch that grew (BroRL, arXiv:2510.01180)."""
    return math.sqrt(facts.completions / reference)


def ess_lr(
    facts: UpdateFacts,
    /,
    *,
    base: Annotated[float, Field(gt=0)] = 1.0,
    shape: Literal["sqrt", "linear"] = "sqrt",
) -> float:
    """min(1, rho / base), or its root, of rho = (sum w)^2 / (B sum w^2), the share of the B
    completions that their importance weights leave effective (VCPO, arXiv:2602.17616).

    The weights are of whole completions and not clipped. `base` is rho on policy, which is 1
    (assumed).
    """
    share = min(1.0, effective_share(facts.log_weights_B) / base)
    return math.sqrt(share) if shape == "sqrt" else share


def effective_share(log_weights_B: Tensor) -> float:
    """Effective sample size / B, in [1 / B, 1]; in log space, so that no weight is infinite."""
    if not len(log_weights_B):
        return 1.0
    logs_B = log_weights_B.double()
    log_share = 2 * logs_B.logsumexp(0) - (2 * logs_B).logsumexp(0)
    return min(1.0, math.exp(log_share.item()) / len(logs_B))


OPTIMIZER_HOOKS: dict[str, Hook] = {"sqrt_batch_lr": sqrt_batch_lr, "ess_lr": ess_lr}
