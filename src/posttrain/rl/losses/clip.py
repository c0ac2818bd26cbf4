"""The clipped surrogate of PPO, per token."""

import torch

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


def clip(
    batch: LossBatch,
    /,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """PPO's clipped surrogate (arXiv:1707.06347), the ratio kept in [1 - low, 1 + high] per token.

    `clip_high` 0.28 is DAPO's clip-higher (arXiv:2503.14476). `dual_clip` c bounds the loss of a
    negative advantage by -cA (arXiv:1912.09729); off by default, always 3 in verl.
    """
    log_ratio_BT = log_ratio(batch)
    ratio_BT = log_ratio_BT.exp()
    loss_BT = surrogate(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    if dual_clip is not None:
        bounded_BT = torch.minimum(loss_BT, -dual_clip * batch.advantage_BT)
        loss_BT = torch.where(batch.advantage_BT < 0, bounded_BT, loss_BT)
    shares = clip_shares(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))
