"""Advantage estimators: scored groups in, one advantage per rollout or per token out.

Shapes: G rollouts of a group, T tokens of a rollout; float64, on CPU. A group whose rewards are
all equal, and so a group of one, gets exact zeros from every estimator that looks no further than
the group (as in TRL and NeMo-RL; verl returns the raw reward for a group of one). To add an
estimator, write the function in a file of its name, name its paper in the docstring, and add a
line to ADVANTAGES.
"""

from collections.abc import Callable

from posttrain.rl.advantages.brpo import brpo
from posttrain.rl.advantages.ce_rm import ce_rm
from posttrain.rl.advantages.chunk_discount import chunk_discount
from posttrain.rl.advantages.dr_grpo import dr_grpo
from posttrain.rl.advantages.gae import gae
from posttrain.rl.advantages.group_mean_batch_std import group_mean_batch_std
from posttrain.rl.advantages.grpo import grpo
from posttrain.rl.advantages.median import median
from posttrain.rl.advantages.opob import opob
from posttrain.rl.advantages.reinforce_pp import reinforce_pp
from posttrain.rl.advantages.rl_plus import rl_plus
from posttrain.rl.advantages.rloo import rloo
from posttrain.rl.scored import Estimate

Advantage = Callable[..., Estimate]

ADVANTAGES: dict[str, Advantage] = {
    "grpo": grpo,
    "rloo": rloo,
    "dr_grpo": dr_grpo,
    "reinforce_pp": reinforce_pp,
    "group_mean_batch_std": group_mean_batch_std,
    "median": median,
    "gae": gae,
    "chunk_discount": chunk_discount,
    "opob": opob,
    "rl_plus": rl_plus,
    "brpo": brpo,
    "ce_rm": ce_rm,
}
