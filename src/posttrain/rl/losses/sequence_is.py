"""REINFORCE with the importance weight of the whole completion, as VCPO uses it."""

from typing import Annotated

from pydantic import Field

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    clamped,
    concluded,
    log_ratio,
    ratio_shares,
)


def sequence_is(
    batch: LossBatch,
    /,
    *,
    cap: Annotated[float, Field(gt=0)] = 8.0,
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """-A log pi of each token, times the completion's pi / pi_behaviour, at most `cap`, detached:
    PPO's clip is off (VCPO, arXiv:2602.17616).

    The weight is the product over the completion's tokens, not their geometric mean. A row of
    another writer, whose chances are unknown, has weight 1.
    """
    gap_BT = (batch.logp_BT.detach() - batch.behaviour_logp_BT) * batch.mask_BT
    log_weight_B1 = gap_BT.sum(dim=1, keepdim=True).masked_fill(batch.external_B1, 0.0)
    weight_BT = clamped(log_weight_B1).exp().expand_as(gap_BT)
    loss_BT = -batch.advantage_BT * weight_BT.clamp(max=cap) * batch.logp_BT
    shares = {"weight/mean": weight_BT.clamp(max=cap), "weight/over": weight_BT > cap}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio(batch)))
