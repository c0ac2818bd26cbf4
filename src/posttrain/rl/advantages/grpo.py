"""GRPO: rewards in units of their group's spread."""

from typing import Literal

from torch import Tensor

from posttrain.rl.advantages.centring import centre, deviation
from posttrain.rl.scored import Estimate, Scored


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
        return centred_G / (deviation(centred_G, sample=scale == "sample_std") + eps)

    return Estimate.of_groups(map(advantage, scored.rewards))
