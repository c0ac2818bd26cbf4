"""IPA: the reward is discounted per interaction with the environment, not per token."""

from statistics import fmean
from typing import Annotated, Literal

import torch
from pydantic import Field

from posttrain.rl.advantages.centring import centre
from posttrain.rl.scored import Estimate, Scored


def chunk_discount(
    scored: Scored,
    /,
    *,
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.95,
    baseline: Literal["none", "group"] = "group",
) -> Estimate:
    """Give chunk k of K the return gamma^(K - k) times the reward (IPA, arXiv:2512.24873).

    A chunk is what the policy writes between two words of the environment; its tokens share the
    return, and a response without such words is one chunk. gamma is assumed. `baseline` none is the
    paper's: a reward of 0 then teaches nothing, so let failures be negative. `group` discounts the
    reward less its group's mean, and is Dr. GRPO for gamma 1.
    """
    rewards = torch.cat([*map(centre, scored.rewards)] if baseline == "group" else scored.rewards)
    rows = []
    for rollout, reward in zip(scored.rollouts, rewards.tolist(), strict=True):
        row_T = torch.zeros(len(rollout.tokens), dtype=torch.float64)
        for still_to_come, chunk in enumerate(reversed(rollout.chunks)):
            row_T[chunk.start : chunk.stop] = reward * gamma**still_to_come
        rows.append(row_T)
    chunks = fmean(len(rollout.chunks) for rollout in scored.rollouts) if rows else 0.0
    return Estimate(rows, metrics={"chunk/number": chunks})
