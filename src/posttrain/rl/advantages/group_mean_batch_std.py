"""Lite PPO: the group says what is usual, the batch how much rewards differ."""

from typing import Literal

import torch

from posttrain.rl.advantages.centring import centre, deviation
from posttrain.rl.scored import Estimate, Scored


def group_mean_batch_std(
    scored: Scored, /, *, spread: Literal["raw", "centred"] = "raw", eps: float = 1e-6
) -> Estimate:
    """Centre on the group's mean, divide by the batch's std + eps (Lite PPO, arXiv:2508.08221).

    The std is that of all rewards of the batch, over their number - 1: `raw` as they are (TRL,
    which adds 1e-4, and ROLL's reward_norm), `centred` less their group's mean (ROLL's
    group_reward_norm).
    """
    centred = [centre(rewards_G) for rewards_G in scored.rewards]
    std = deviation(centre(torch.cat(centred if spread == "centred" else scored.rewards)))
    found = Estimate.of_groups(centred_G / (std + eps) for centred_G in centred)
    return found._replace(metrics={"advantage/batch_std": float(std)})
