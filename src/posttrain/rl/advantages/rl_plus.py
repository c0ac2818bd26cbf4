"""RL-PLUS: the policy's own responses are the measure of a worked solution, too."""

from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from posttrain.rl.advantages.centring import centre, deviation
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Estimate, Scored


def rl_plus(
    scored: Scored, /, *, scale: Literal["none", "sample_std"] = "none", eps: float = 1e-6
) -> Estimate:
    """Centre on the mean of the policy's own rewards in the group (RL-PLUS, arXiv:2508.00222).

    A worked solution (source `external`) is compared with that mean and does not move it.
    `sample_std` divides by the own rewards' std + eps, by 1 where they do not differ; the authors'
    script leaves the scale alone. A group without own responses gets zeros; without worked
    solutions this is Dr. GRPO, or GRPO.
    """
    pairs = zip(scored.groups, scored.rewards, strict=True)
    groups = [against_own(group, rewards_G, scale, eps) for group, rewards_G in pairs]
    rows = Estimate.of_groups(groups)
    external = [
        float(advantage)
        for rollout, advantage in zip(scored.rollouts, rows.advantages, strict=True)
        if rollout.source == "external"
    ]
    return rows._replace(metrics={"advantage/external": fmean(external)} if external else {})


def against_own(group: Group, rewards_G: Tensor, scale: str, eps: float) -> Tensor:
    """The advantages of one group [G]."""
    own_G = torch.tensor([rollout.source != "external" for rollout in group], dtype=torch.bool)
    if not own_G.any() or not centre(rewards_G).any():
        return torch.zeros_like(rewards_G)
    own = rewards_G[own_G]
    centred = centre(own)
    # Rounding must not part rewards that are equal from their mean.
    level = own.mean() if centred.any() else own[0]
    advantage_G = rewards_G - level
    if scale == "sample_std" and centred.any():
        advantage_G = advantage_G / (deviation(centred) + eps)
    return advantage_G
