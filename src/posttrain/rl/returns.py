"""Where the reward of a response stands, token by token. Shapes: T tokens of a response; float64.

The environment's words have no return: values, discounts and means pass over them as though they
were not there (as in verl and NeMo-RL; OpenRLHF keeps decaying through them).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posttrain.rl.rollout import Rollout


def written(rollout: Rollout) -> Tensor:
    """Which tokens the policy wrote [T], bool."""
    return torch.tensor(rollout.acted or (True,) * len(rollout.tokens), dtype=torch.bool)


def discounted(rollout: Rollout, reward: float, gamma: float) -> Tensor:
    """gamma^(written tokens still to come) times the reward [T]; 0 on the environment's words."""
    own_T = written(rollout)
    to_come_T = own_T.sum() - own_T.cumsum(0)
    return reward * gamma ** to_come_T.double() * own_T


def over_tokens(
    rows: Sequence[Tensor], rollouts: Sequence[Rollout], change: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Change the numbers of all written tokens of a batch as one row; the others become 0."""
    if not rows:
        return []
    own = torch.cat([written(rollout) for rollout in rollouts])
    changed = torch.zeros(len(own), dtype=torch.float64)
    changed[own] = change(torch.cat([*rows]).double()[own])
    return list(torch.split(changed, [len(row) for row in rows]))
