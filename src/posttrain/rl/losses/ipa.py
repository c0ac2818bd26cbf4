"""Interaction-perceptive agentic optimisation: ratios and masks of whole chunks."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    concluded,
    log_drift,
    log_ratio,
    ratio_shares,
)


def ipa(
    batch: LossBatch,
    /,
    *,
    mismatch: Annotated[float, Field(gt=0)] = 1.2,
    aggregation: Aggregation = "token_mean",
) -> Loss:
    """-A log pi; where A is negative, times the chunk's ratio pi / pi_old kept in [0, 1] and
    detached (IPA, arXiv:2512.24873).

    A chunk is a run of the policy's tokens between two words of the environment, the whole
    response without one; its ratio is the geometric mean of its tokens'. A chunk whose
    pi_old / pi_behaviour is above `mismatch` (H, 1.2 assumed) is masked; the means still count
    it. That needs `old_logps: recompute`. Rows of another writer are never masked.
    """
    log_ratio_BT = log_ratio(batch)
    ratio_BT = chunk_mean(log_ratio_BT.detach(), batch.mask_BT).exp()
    drift_BT = chunk_mean(log_drift(batch), batch.mask_BT).exp()
    masked_BT = drift_BT > mismatch
    weight_BT = torch.where(batch.advantage_BT < 0, ratio_BT.clamp(0, 1), 1.0)
    weight_BT = weight_BT.masked_fill(masked_BT, 0.0)
    loss_BT = -batch.advantage_BT * weight_BT * batch.logp_BT
    shares = {"mask/share": masked_BT, "weight/mean": weight_BT, "ratio/chunk": ratio_BT}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))


def chunk_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Each masked-in token gets the mean over its contiguous run of such tokens."""
    before_BT = torch.cat([torch.zeros_like(mask_BT[:, :1]), mask_BT[:, :-1]], dim=1)
    chunk_BT = (mask_BT & ~before_BT).cumsum(dim=1)
    blank_BK = values_BT.new_zeros(len(values_BT), values_BT.shape[1] + 1)
    sums_BK = blank_BK.scatter_add(1, chunk_BT, values_BT * mask_BT)
    counts_BK = blank_BK.scatter_add(1, chunk_BT, mask_BT.to(values_BT.dtype))
    return (sums_BK / counts_BK.clamp(min=1)).gather(1, chunk_BT)
