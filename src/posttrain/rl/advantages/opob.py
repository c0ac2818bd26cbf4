"""VCPO's baseline: the one with the least variance for old responses."""

from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from posttrain.errors import ConfigError, Fault
from posttrain.rl.advantages.centring import centre, deviation
from posttrain.rl.returns import written
from posttrain.rl.rollout import Rollout
from posttrain.rl.scored import Estimate, PolicyView, Scored


def opob(
    scored: Scored,
    /,
    *,
    scale: Literal["population_std", "sample_std", "none"] = "population_std",
    length_norm: bool = False,
    eps: float = 1e-6,
) -> Estimate:
    """Centre on b = sum w^2 g^2 R / sum w^2 g^2 of the group (VCPO's OPOB, arXiv:2602.17616).

    w is a response's chance now over its chance when it was drawn, g^2 the squared norm of its
    log-prob's gradient, over its squared length with `length_norm`. Then divide by the std + eps,
    over G as in the authors' code. A backward pass for each response whose group has a signal.
    """
    centred = [centre(rewards_G) for rewards_G in scored.rewards]
    pairs = zip(scored.groups, centred, strict=True)
    loud = [rollout for group, centred_G in pairs if centred_G.any() for rollout in group]
    logs = iter(log_weights(_policy(scored), loud, length_norm=length_norm))
    groups, shifts = [], []
    for centred_G in centred:
        shift, unit = 0.0, 1.0
        if centred_G.any():
            shift = least_variance(centred_G, torch.stack([next(logs) for _ in centred_G]))
            shifts.append(abs(shift))
            if scale != "none":
                unit = float(deviation(centred_G, sample=scale == "sample_std")) + eps
        groups.append((centred_G - shift) / unit)
    metrics = {"opob/shift": fmean(shifts)} if shifts else {}
    return Estimate.of_groups(groups)._replace(metrics=metrics)


def least_variance(rewards_G: Tensor, logs_G: Tensor) -> float:
    """The rewards' mean by weights of these logs; the plain one where all weights are 0."""
    share_G = logs_G.softmax(dim=0)
    if not share_G.isfinite().all():
        share_G = torch.full_like(rewards_G, 1 / len(rewards_G))
    return float((share_G * rewards_G).sum())


def log_weights(
    policy: PolicyView, rollouts: list[Rollout], *, length_norm: bool = False
) -> list[Tensor]:
    """log(w^2 g^2) of each response; as logs, since w spans more than a float64 does."""
    found = []
    trios = zip(rollouts, policy.logps(rollouts), policy.gradient_norms(rollouts), strict=True)
    for rollout, now_T, norm in trios:
        behaviour_T = torch.tensor(rollout.behaviour_logps, dtype=torch.float64)
        log_w = (now_T.double() - behaviour_T)[written(rollout)].sum()
        length = max(1, rollout.learnable) if length_norm else 1
        found.append(2 * log_w + torch.tensor(norm / length**2, dtype=torch.float64).log())
    return found


def _policy(scored: Scored) -> PolicyView:
    if scored.policy is None:
        raise ConfigError(
            Fault("no policy", "rl.advantage", "`opob` asks it for gradients", "give one")
        )
    return scored.policy
