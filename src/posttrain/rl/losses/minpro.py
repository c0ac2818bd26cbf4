"""Minimum prefix ratio: a token counts no more than the least likely one before it."""

import math

import torch
from torch import Tensor

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    clip_shares,
    concluded,
    log_ratio,
    ratio_shares,
    surrogate,
)


def minpro(
    batch: LossBatch,
    /,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """PPO's surrogate per token, times the smallest ratio among the policy's earlier tokens of the
    completion, 1 before the first (MinPRO, arXiv:2601.22718).

    It stands in for the product over the prefix, whose variance grows with its length. Assumed:
    the prefix factor is detached, and the clip is on the token's own ratio.
    """
    log_ratio_BT = log_ratio(batch)
    prefix_BT = prefix_minimum(log_ratio_BT.detach(), batch.mask_BT).exp()
    ratio_BT = log_ratio_BT.exp()
    loss_BT = prefix_BT * surrogate(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares = clip_shares(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares |= {"prefix/mean": prefix_BT, "prefix/square": prefix_BT.square()}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))


def prefix_minimum(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The smallest log-ratio among the masked-in tokens before each; 0 where there is none."""
    own_BT = log_ratio_BT.masked_fill(~mask_BT, math.inf)
    nothing_B1 = torch.full_like(own_BT[:, :1], math.inf)
    least_BT = torch.cat([nothing_B1, own_BT[:, :-1]], dim=1).cummin(dim=1).values
    return least_BT.masked_fill(least_BT.isinf(), 0.0)
