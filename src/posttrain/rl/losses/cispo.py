"""Clipped importance sampling: the weight is bounded, and no token loses its gradient."""

import math
from typing import Literal

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    concluded,
    log_ratio,
    ratio_shares,
)


def cispo(
    batch: LossBatch,
    /,
    *,
    clip_low: float | None = None,
    clip_high: float = 5.0,
    bounds: Literal["ratio", "epsilon"] = "ratio",
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """-A log pi, times the ratio kept within bounds and detached (CISPO, arXiv:2506.13585).

    `bounds: ratio`: the ratio stays in [clip_low, clip_high] (TRL, whose usual cap is 5);
    `bounds: epsilon`: in [1 - clip_low, 1 + clip_high] (verl, NeMo-RL, ROLL). Without `clip_low`
    there is no lower bound (TRL; with `epsilon`, open-instruct).
    """
    relative = bounds == "epsilon"
    lower = -math.inf if clip_low is None else 1 - clip_low if relative else clip_low
    upper = 1 + clip_high if relative else clip_high
    log_ratio_BT = log_ratio(batch)
    ratio_BT = log_ratio_BT.exp().detach()
    loss_BT = -batch.advantage_BT * ratio_BT.clamp(lower, upper) * batch.logp_BT
    shares = {"clip/low": ratio_BT < lower, "clip/high": ratio_BT > upper}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))
