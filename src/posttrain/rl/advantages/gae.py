"""PPO's advantage: each token's reward and prospects against what a critic expected."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from posttrain.errors import ConfigError, Fault
from posttrain.rl.advantages.centring import whitened
from posttrain.rl.returns import over_tokens, written
from posttrain.rl.rollout import Rollout
from posttrain.rl.scored import Estimate, Scored

Share = Annotated[float, Field(ge=0, le=1)]


def gae(
    scored: Scored, /, *, gamma: Share = 1.0, lam: Share = 1.0, whiten: bool = True
) -> Estimate:
    """Compare with a critic (PPO, arXiv:1707.06347) by generalised advantages (arXiv:1506.02438).

    Backwards over a response's tokens A_t = d_t + gamma lam A_(t+1), where d_t = r_t +
    gamma V_(t+1) - V_t and all of the reward is at the last token. The environment's words are
    skipped, as in verl and NeMo-RL. `whiten`: over all tokens of the batch, as verl does.
    """
    if scored.values is None:
        raise ConfigError(
            Fault(
                "no critic",
                "rl.critic",
                "the advantage `gae` compares with what a critic expected",
                "choose a critic, for instance `critic: single`",
            )
        )
    pairs = zip(scored.rollouts, scored.values.mean, strict=True)
    rows = [against(values_T, rollout, gamma, lam) for rollout, values_T in pairs]
    return Estimate(over_tokens(rows, scored.rollouts, whitened) if whiten else rows)


def against(values_T: Tensor, rollout: Rollout, gamma: float, lam: float) -> Tensor:
    """The generalised advantage of each token [T]; 0 on the environment's words."""
    own_T = written(rollout)
    backwards: list[float] = []
    advantage, later_value, reward = 0.0, 0.0, rollout.reward
    for value in reversed(values_T[own_T].tolist()):
        advantage = reward + gamma * later_value - value + gamma * lam * advantage
        later_value, reward = value, 0.0
        backwards.append(advantage)
    advantage_T = torch.zeros(len(own_T), dtype=torch.float64)
    advantage_T[own_T] = torch.tensor(backwards[::-1], dtype=torch.float64)
    return advantage_T
