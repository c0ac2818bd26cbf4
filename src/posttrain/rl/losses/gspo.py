"""Group sequence policy optimisation: one ratio, and one clip, for a whole completion."""

from posttrain.rl.losses.batch import (
    Aggregation,
    Loss,
    LossBatch,
    clip_shares,
    concluded,
    log_ratio,
    ratio_shares,
    row_mean,
    surrogate,
)


def gspo(
    batch: LossBatch,
    /,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    aggregation: Aggregation = "sequence_mean",
) -> Loss:
    """PPO's surrogate with exp(mean log-ratio) of the completion as the ratio of each of its
    tokens (GSPO, arXiv:2507.18071).

    Averages over completions, as verl, TRL, NeMo-RL and OpenRLHF do; AReaL averages over tokens,
    which is `aggregation: token_mean`. Where advantages differ within a completion the gradient
    goes through the whole ratio, as in TRL; verl's goes token by token.
    """
    log_ratio_BT = log_ratio(batch)
    ratio_BT = row_mean(log_ratio_BT, batch).exp().expand_as(log_ratio_BT)
    loss_BT = surrogate(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares = clip_shares(ratio_BT, batch.advantage_BT, clip_low, clip_high)
    shares |= {"ratio/sequence": ratio_BT}
    return concluded(loss_BT, batch, aggregation, shares | ratio_shares(log_ratio_BT))
