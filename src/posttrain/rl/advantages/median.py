"""MC-GRPO: the median is the baseline, and the response that has it is left out."""

from itertools import accumulate
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from posttrain.rl.scored import Estimate, Scored

Guard = Literal["floor", "clip", "none"]


def median(
    scored: Scored,
    /,
    *,
    guard: Guard = "floor",
    floor: Annotated[float, Field(gt=0)] = 0.25,
    limit: Annotated[float, Field(gt=0)] = 5.0,
    eps: Annotated[float, Field(gt=0)] = 1e-3,
) -> Estimate:
    """Centre on the median, divide by the median deviation + eps (MC-GRPO, arXiv:2601.22582).

    Advantages are multiplied by group size / number that is not 0, and the response with the
    median, the pivot, is dropped: to learn from G, let `group_size` be G + 1, an odd number (the
    lower median is taken of an even one). Rewards of 0 and 1 often have no deviation at all, and
    then +-1 / eps comes out; the guards are ours: `floor`, the divisor is at least that; `clip`,
    no advantage is beyond +-`limit`; `none`, as in the authors' code.
    """
    found = [deviations(rewards_G, eps) for rewards_G in filter(len, scored.rewards)]
    groups = [each.guarded(guard, floor, limit) for each in found]
    starts = accumulate((len(advantage_G) for advantage_G in groups), initial=0)
    dropped = {start + each.pivot: "pivot" for start, each in zip(starts, found, strict=False)}
    pairs = zip(groups, found, strict=True)
    guarded = [float((new_G != each.advantage_G).any()) for new_G, each in pairs]
    metrics = {"median/guarded": fmean(guarded)} if guarded else {}
    return Estimate.of_groups(groups)._replace(dropped=dropped, metrics=metrics)


class Deviations(NamedTuple):
    """A group around its pivot: what is unguarded [G], and what it was divided by."""

    pivot: int
    divisor: float
    advantage_G: Tensor

    def guarded(self, guard: Guard, floor: float, limit: float) -> Tensor:
        """The advantages that the guard lets pass [G]."""
        if guard == "clip":
            return self.advantage_G.clamp(-limit, limit)
        wider = max(1.0, floor / self.divisor) if guard == "floor" else 1.0
        return self.advantage_G / wider


def deviations(rewards_G: Tensor, eps: float) -> Deviations:
    """Deviations from the median in units of their own median, before any guard."""
    middle = (len(rewards_G) - 1) // 2
    pivot = int(rewards_G.argsort(stable=True)[middle])
    from_pivot_G = rewards_G - rewards_G[pivot]
    divisor = float(from_pivot_G.abs().sort().values[middle]) + eps
    some = max(1, int(torch.count_nonzero(from_pivot_G)))
    return Deviations(pivot, divisor, from_pivot_G / divisor * (len(rewards_G) / some))
