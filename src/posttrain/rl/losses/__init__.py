"""Policy losses: log-probs of a micro-batch in, a loss to minimise and its metrics out.

To add a loss, write the function in a file of its name, name its paper in the docstring, and add
a line to POLICY_LOSSES. `posttrain.rl.losses.batch` holds what the losses share.
"""

from collections.abc import Callable

from posttrain.rl.losses.batch import (
    AGGREGATIONS,
    LOG_RATIO_LIMIT,
    Aggregation,
    Loss,
    LossBatch,
    Totals,
    kl_estimate,
    seen_mean,
    sequence_mean,
    token_mean,
    token_sum_norm,
)
from posttrain.rl.losses.cispo import cispo
from posttrain.rl.losses.clip import clip
from posttrain.rl.losses.decoupled_ppo import decoupled_ppo
from posttrain.rl.losses.gspo import gspo
from posttrain.rl.losses.ipa import ipa
from posttrain.rl.losses.minpro import minpro
from posttrain.rl.losses.rl_plus import rl_plus
from posttrain.rl.losses.sequence_is import sequence_is

__all__ = [
    "AGGREGATIONS",
    "LOG_RATIO_LIMIT",
    "POLICY_LOSSES",
    "Aggregation",
    "Loss",
    "LossBatch",
    "PolicyLoss",
    "Totals",
    "kl_estimate",
    "seen_mean",
    "sequence_mean",
    "token_mean",
    "token_sum_norm",
]

PolicyLoss = Callable[..., Loss]

POLICY_LOSSES: dict[str, PolicyLoss] = {
    "clip": clip,
    "gspo": gspo,
    "cispo": cispo,
    "decoupled_ppo": decoupled_ppo,
    "minpro": minpro,
    "sequence_is": sequence_is,
    "ipa": ipa,
    "rl_plus": rl_plus,
}
