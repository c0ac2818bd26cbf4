"""What estimators do to the rewards of a group or of a batch; float64. Shapes: G rewards."""

import torch
from torch import Tensor


def centre(rewards_G: Tensor) -> Tensor:
    """Rewards minus their mean; exact zeros where all are equal, despite rounding."""
    rewards_G = rewards_G.double()
    if not len(rewards_G) or rewards_G.amax() == rewards_G.amin():
        return torch.zeros_like(rewards_G)
    return rewards_G - rewards_G.mean()


def deviation(centred_G: Tensor, *, sample: bool = True) -> Tensor:
    """Standard deviation of centred rewards, over G - 1 (`sample`) or G; 0 for a single one."""
    freedom = len(centred_G) - sample
    return (centred_G.square().sum() / max(1, freedom)).sqrt()


def whitened(values: Tensor, eps: float = 1e-8) -> Tensor:
    """(x - mean) / sqrt(variance + eps), the variance over n - 1, as in verl and ROLL."""
    centred = centre(values)
    return centred / (deviation(centred).square() + eps).sqrt()
