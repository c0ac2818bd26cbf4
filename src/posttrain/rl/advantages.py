"""Advantage estimators: rewards of a batch of groups in, one advantage per completion out.

Shapes: P prompts, G completions per prompt; float64, on CPU. A group whose rewards are all
equal, and so a group of one, gets exact zeros (as in TRL and NeMo-RL; verl returns the raw
reward for a group of one). To add an estimator, write the function, name its paper in the
docstring, and add a line to ADVANTAGES.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Advantage = Callable[..., Tensor]


def grpo(
    rewards_PG: Tensor,
    /,
    *,
    scale: Literal["sample_std", "population_std", "none"] = "sample_std",
    eps: float = 1e-6,
) -> Tensor:
    """Centre on the group's mean and divide by its std + eps (GRPO, arXiv:2402.03300).

    `sample_std` divides by G - 1 (verl, TRL, OpenRLHF, ROLL), `population_std` by G
    (open-instruct). TRL adds eps 1e-4, OpenRLHF 1e-9.
    """
    centred_PG = centre(rewards_PG)
    if scale == "none":
        return centred_PG
    freedom = rewards_PG.shape[1] - (scale == "sample_std")
    std_P1 = (centred_PG.square().sum(dim=1, keepdim=True) / max(1, freedom)).sqrt()
    return centred_PG / (std_P1 + eps)


def rloo(rewards_PG: Tensor, /) -> Tensor:
    """Centre each reward on the mean of the *other* ones in its group (RLOO, arXiv:2402.14740)."""
    group_size = rewards_PG.shape[1]
    return centre(rewards_PG) * (group_size / max(1, group_size - 1))


def dr_grpo(rewards_PG: Tensor, /) -> Tensor:
    """Centre on the group's mean and leave the scale alone (Dr. GRPO, arXiv:2503.20783)."""
    return centre(rewards_PG)


def centre(rewards_PG: Tensor) -> Tensor:
    """Rewards minus their group's mean; exact zeros where all are equal, despite rounding."""
    rewards_PG = rewards_PG.double()
    equal_P1 = rewards_PG.amax(dim=1, keepdim=True) == rewards_PG.amin(dim=1, keepdim=True)
    centred_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return torch.where(equal_P1, 0.0, centred_PG)


ADVANTAGES: dict[str, Advantage] = {"grpo": grpo, "rloo": rloo, "dr_grpo": dr_grpo}
