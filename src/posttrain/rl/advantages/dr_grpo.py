"""Dr. GRPO: rewards less their group's mean, and no more."""

from posttrain.rl.advantages.centring import centre
from posttrain.rl.scored import Estimate, Scored


def dr_grpo(scored: Scored, /) -> Estimate:
    """Centre on the group's mean and leave the scale alone (Dr. GRPO, arXiv:2503.20783).

    It is the advantage of DARS (arXiv:2508.13755), too.
    """
    return Estimate.of_groups(map(centre, scored.rewards))
