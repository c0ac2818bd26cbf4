"""What every policy loss reads and returns, and the ways to make one number of its tokens.

Shapes: B completions, T tokens. `Totals` counts the whole batch of the update, so that the
losses, and the metrics, of its micro-batches add up to those of the batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to this before `exp` (as in verl), so that no ratio is infinite."""

Aggregation = Literal["token_mean", "sequence_mean", "token_sum_norm"]


class Totals(NamedTuple):
    """Of the whole batch: tokens and completions that count, the longest that may be, and
    `seen`, the tokens of those that have a gradient and so are run through the model."""

    tokens: int
    rows: int
    max_completion_length: int
    seen: int


@dataclass(frozen=True)
class LossBatch:
    """`old_logp_BT` from before the update, `behaviour_logp_BT` from when the tokens were drawn;
    `advantage_BT` may be one per row [B, 1]; `mask_BT`: the tokens that the policy wrote;
    `external_B1`: rows that another writer wrote; `penalty_BT` is added to each token's loss (the
    KL to a reference less the entropy bonus, already weighted)."""

    logp_BT: Tensor
    old_logp_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor
    totals: Totals
    behaviour_logp_BT: Tensor
    external_B1: Tensor
    penalty_BT: Tensor | None = None

    def penalised(self, penalty_BT: Tensor) -> "LossBatch":
        """The same batch with a term to add to each token's loss."""
        return replace(self, penalty_BT=penalty_BT)


class Loss(NamedTuple):
    """`metrics` are shares of means over the tokens seen: summed over micro-batches they are
    those means."""

    value: Tensor
    metrics: dict[str, Tensor]


def concluded(
    loss_BT: Tensor, batch: LossBatch, aggregation: Aggregation, shares: Mapping[str, Tensor]
) -> Loss:
    """Add the penalty, make one number of the tokens' losses, and metrics of `shares` [B, T]."""
    if batch.penalty_BT is not None:
        loss_BT = loss_BT + batch.penalty_BT
    with torch.no_grad():
        metrics = {name: seen_mean(share_BT, batch) for name, share_BT in shares.items()}
    return Loss(AGGREGATIONS[aggregation](loss_BT, batch), metrics)


def log_ratio(batch: LossBatch) -> Tensor:
    """log pi / pi_old of each token, clamped; where the clamp holds there is no gradient."""
    return clamped(batch.logp_BT - batch.old_logp_BT)


def log_drift(batch: LossBatch) -> Tensor:
    """log pi_old / pi_behaviour of each token, clamped and detached; 0 where another writer's
    chances are unknown."""
    drift_BT = (batch.old_logp_BT - batch.behaviour_logp_BT).detach()
    return clamped(drift_BT.masked_fill(batch.external_B1, 0.0))


def surrogate(ratio_BT: Tensor, advantage_BT: Tensor, low: float, high: float) -> Tensor:
    """PPO's pessimistic loss: the worse of the ratio and the ratio kept in [1 - low, 1 + high]."""
    clipped_BT = -advantage_BT * ratio_BT.clamp(1 - low, 1 + high)
    return torch.maximum(-advantage_BT * ratio_BT, clipped_BT)


def clamped(log_ratio: Tensor) -> Tensor:
    """Keep a log-ratio where `exp` is finite and not zero."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clip_shares(
    ratio_BT: Tensor, advantage_BT: Tensor, low: float, high: float
) -> dict[str, Tensor]:
    """Which tokens clipping stops, at either side."""
    return {
        "clip/low": (ratio_BT < 1 - low) & (advantage_BT < 0),
        "clip/high": (ratio_BT > 1 + high) & (advantage_BT > 0),
    }


def ratio_shares(log_ratio_BT: Tensor) -> dict[str, Tensor]:
    """The mean ratio, and k1 and k3 of the KL from the old policy."""
    with torch.no_grad():
        ratio_BT = log_ratio_BT.exp()
        return {
            "ratio/mean": ratio_BT,
            "ratio/k1": -log_ratio_BT,
            "ratio/k3": ratio_BT - 1 - log_ratio_BT,
        }


def row_mean(values_BT: Tensor, batch: LossBatch) -> Tensor:
    """Mean over each row's tokens [B, 1], 0 for an empty row."""
    lengths_B1 = batch.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return (values_BT * batch.mask_BT).sum(dim=1, keepdim=True) / lengths_B1


def seen_mean(values_BT: Tensor, batch: LossBatch) -> Tensor:
    """A micro-batch's share of the mean over the tokens that are run through the model."""
    return (values_BT * batch.mask_BT).sum() / max(1, batch.totals.seen)


def token_mean(loss_BT: Tensor, batch: LossBatch) -> Tensor:
    """Sum over tokens / tokens of the whole batch: long completions weigh more (DAPO)."""
    return (loss_BT * batch.mask_BT).sum() / max(1, batch.totals.tokens)


def sequence_mean(loss_BT: Tensor, batch: LossBatch) -> Tensor:
    """Mean over completions of their token means (GRPO, arXiv:2402.03300).

    Empty completions count among the rows, as in TRL and ROLL; verl leaves them out.
    """
    lengths_B = batch.mask_BT.sum(dim=1).clamp(min=1)
    return ((loss_BT * batch.mask_BT).sum(dim=1) / lengths_B).sum() / max(1, batch.totals.rows)


def token_sum_norm(loss_BT: Tensor, batch: LossBatch) -> Tensor:
    """Sum / (rows * longest completion allowed), so that length does not matter (Dr. GRPO).

    As in TRL; ROLL divides by the length only, which is `rows` times larger.
    """
    scale = max(1, batch.totals.rows * batch.totals.max_completion_length)
    return (loss_BT * batch.mask_BT).sum() / scale


def kl_estimate(
    logp_BT: Tensor, reference_BT: Tensor, estimator: Literal["k1", "k2", "k3"]
) -> Tensor:
    """Estimate KL(policy || reference) per token from the policy's own samples, in nats.

    k1 is the plain log-ratio, k2 half its square, k3 unbiased and never negative
    (Schulman 2020, http://joschu.net/blog/kl-approx.html). As in TRL nothing but the exponent
    is clamped.
    """
    log_ratio_BT = logp_BT - reference_BT
    if estimator == "k1":
        return log_ratio_BT
    if estimator == "k2":
        return log_ratio_BT.square() / 2
    inverse_BT = (-log_ratio_BT).clamp(max=LOG_RATIO_LIMIT)
    return inverse_BT.exp() - 1 - inverse_BT


AGGREGATIONS: dict[str, Callable[[Tensor, LossBatch], Tensor]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "token_sum_norm": token_sum_norm,
}
