"""RLOO: the other rewards of the group are the baseline."""

from posttrain.rl.advantages.centring import centre
from posttrain.rl.scored import Estimate, Scored


def rloo(scored: Scored, /) -> Estimate:
    """Centre each reward on the mean of the *other* ones in its group (RLOO, arXiv:2402.14740)."""
    return Estimate.of_groups(
        centre(rewards_G) * (len(rewards_G) / max(1, len(rewards_G) - 1))
        for rewards_G in scored.rewards
    )
