"""REINFORCE++: the whole batch is the baseline, and the unit."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from posttrain.rl.advantages.centring import centre, whitened
from posttrain.rl.returns import discounted, over_tokens
from posttrain.rl.scored import Estimate, Scored


def reinforce_pp(
    scored: Scored,
    /,
    *,
    baseline: Literal["none", "group"] = "none",
    over: Literal["tokens", "sequences"] = "tokens",
    divide: bool = True,
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0,
    eps: float = 1e-8,
) -> Estimate:
    """Whiten each token's discounted return over the batch (REINFORCE++, arXiv:2501.03262).

    Whitened is (x - mean) / sqrt(variance + eps), the variance over n - 1 as in verl; OpenRLHF and
    NeMo-RL divide by n. `over` tokens, long responses weigh more in both; `over` sequences, the
    rewards are whitened, and then discounted. `baseline` group subtracts the group's mean first,
    never its std. Without `divide` only means are subtracted. A KL term belongs to the loss here.
    """

    def whiten(values: Tensor) -> Tensor:
        return whitened(values, eps) if divide else centre(values)

    rewards = torch.cat([*map(centre, scored.rewards)] if baseline == "group" else scored.rewards)
    if over == "sequences":
        rewards = whiten(rewards)
    pairs = zip(scored.rollouts, rewards.tolist(), strict=True)
    rows = [discounted(rollout, reward, gamma) for rollout, reward in pairs]
    return Estimate(over_tokens(rows, scored.rollouts, whiten) if over == "tokens" else rows)
