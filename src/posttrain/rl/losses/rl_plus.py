"""RL-PLUS: learning from another writer's solutions beside one's own."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
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


def rl_plus(
    batch: LossBatch,
    /,
    *,
    gamma: Annotated[float, Field(ge=0)] = 0.5,
    uniform: Literal["one", "inv_vocab"] = "one",
    vocabulary: Annotated[int, Field(ge=0)] = 0,
    clip_on_policy: bool = False,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """-r A on the policy's own tokens, -r^m A C on another writer's (RL-PLUS, arXiv:2508.00222).

    r^m = 2 pi / (pi_omega + pi_old), pi_omega = (pi_old + U) / 2 for the unknown writer, U 1 as in
    the authors' code or 1 / `vocabulary` (`inv_vocab`) as in their paper; C = (1 - pi)^gamma,
    detached. Another writer's tokens are not clipped, the policy's if `clip_on_policy`. Both share
    one mean; the authors divide by a constant length, which is `aggregation: token_sum_norm`.
    """
    ratio_BT = log_ratio(batch).exp()
    low, high = (clip_low, clip_high) if clip_on_policy else (math.inf, math.inf)
    own_BT = surrogate(ratio_BT, batch.advantage_BT, low, high)
    weight_BT = external_weight(batch, gamma, 1.0 if uniform == "one" else 1 / vocabulary)
    loss_BT = torch.where(batch.external_B1, -batch.advantage_BT * weight_BT, own_BT)
    stopped = clip_shares(ratio_BT, batch.advantage_BT, low, high)
    shares = {name: hit_BT & ~batch.external_B1 for name, hit_BT in stopped.items()} | {
        "external/share": batch.external_B1.expand_as(ratio_BT),
        "external/weight": weight_BT.detach() * batch.external_B1,
    }
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio(batch)))


def external_weight(batch: LossBatch, gamma: float, uniform: float) -> Tensor:
    """r^m C of each token, for a writer who is half the old policy and half `uniform`."""
    chance_BT = batch.logp_BT.exp()
    mixed_BT = 2 * chance_BT / (1.5 * batch.old_logp_BT.exp() + 0.5 * uniform)
    return mixed_BT * (1 - chance_BT.detach()).clamp(min=0) ** gamma
