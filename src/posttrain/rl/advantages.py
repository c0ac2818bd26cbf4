"""Advantage estimators: scored groups in, one advantage per rollout or per token out.

Shapes: G rollouts of a group; float64, on CPU. A group whose rewards are all equal, and so a
group of one, gets exact zeros (as in TRL and NeMo-RL; verl returns the raw reward for a group of
one). To add an estimator, write the function, name its paper in the docstring, and add a line to
ADVANTAGES.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from posttrain.rl.scored import Estimate, Scored

Advantage = Callable[..., Estimate]


def grpo(
    scored: Scored,
    /,
    *,
    scale: Literal["sample_std", "population_std", "none"] = "sample_std",
    eps: float = 1e-6,
) -> Estimate:
    """Centre on the group's mean and divide by its std + eps (GRPO, arXiv:2402.03300).

    `sample_std` divides by G - 1 (verl, TRL, OpenRLHF, ROLL), `population_std` by G
    (open-instruct). TRL adds eps 1e-4, OpenRLHF 1e-9.
    """

    def advantage(rewards_G: Tensor) -> Tensor:
        centred_G = centre(rewards_G)
        if scale == "none":
            return centred_G
        freedom = len(rewards_G) - (scale == "sample_std")
        return centred_G / ((centred_G.square().sum() / max(1, freedom)).sqrt() + eps)

    return Estimate.of_groups(map(advantage, scored.rewards))


def rloo(scored: Scored, /) -> Estimate:
    """Centre each reward on the mean of the *other* ones in its group (RLOO, arXiv:2402.14740)."""
    return Estimate.of_groups(
        centre(rewards_G) * (len(rewards_G) / max(1, len(rewards_G) - 1))
        for rewards_G in scored.rewards
    )


def dr_grpo(scored: Scored, /) -> Estimate:
    """Centre on the group's mean and leave the scale alone (Dr. GRPO, arXiv:2503.20783)."""
    return Estimate.of_groups(map(centre, scored.rewards))


def centre(rewards_G: Tensor) -> Tensor:
    """Rewards minus their group's mean; exact zeros where all are equal, despite rounding."""
    rewards_G = rewards_G.double()
    if not len(rewards_G) or rewards_G.amax() == rewards_G.amin():
        return torch.zeros_like(rewards_G)
    return rewards_G - rewards_G.mean()


ADVANTAGES: dict[str, Advantage] = {"grpo": grpo, "rloo": rloo, "dr_grpo": dr_grpo}
