"""Decoupled PPO: one policy says how far a step may go, another one drew the tokens."""

from typing import Annotated, Literal

import torch
from pydantic import Field

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    clip_shares,
    concluded,
    log_drift,
    log_ratio,
    ratio_shares,
    surrogate,
)


def decoupled_ppo(
    batch: LossBatch,
    /,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    cap: Annotated[float, Field(gt=0)] = 5.0,
    over: Literal["truncate", "mask"] = "mask",
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """PPO's surrogate around the proximal policy pi_old, times the detached weight
    pi_old / pi_behaviour of each token (AReaL, arXiv:2505.24298).

    A weight above `cap` loses its token (`mask`; the means still count it) or becomes the cap
    (`truncate`): that is truncated importance sampling (TIS), the correction for an engine whose
    chances differ from the trainer's. Needs `old_logps: recompute`; with the engine's log-probs
    as the old ones every weight is 1, and this is `clip`. Rows of another writer have weight 1.
    """
    weight_BT = log_drift(batch).exp()
    over_BT = weight_BT > cap
    weight_BT = torch.where(over_BT, 0.0 if over == "mask" else cap, weight_BT)
    log_ratio_BT = log_ratio(batch)
    ratio_BT = log_ratio_BT.exp()
    loss_BT = weight_BT * surrogate(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares = clip_shares(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares |= {"weight/mean": weight_BT, "weight/over": over_BT}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))
