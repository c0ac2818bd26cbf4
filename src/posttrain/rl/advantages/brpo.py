"""BRPO: better or worse than one response of the group, and nothing in between."""

from statistics import fmean
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from posttrain.rl.reference import reference_of
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Estimate, Scored


def brpo(scored: Scored, /, *, max_skew: Annotated[float, Field(ge=0, le=1)] = 0.6) -> Estimate:
    """A_i = +1 where r_i is above the reward of a random reference, else -1 (arXiv:2506.00103).

    The reference is not trained (assumed), and nothing is divided by a spread. A group whose |mean
    A| is above `max_skew` is dropped, for its reference is an outlier (that this is the paper's
    skew is assumed). With a judge that compares, `rewards: [{name: judge, against: reference}]`.
    """
    rows: list[Tensor] = []
    dropped: dict[int, str] = {}
    skews: list[float] = []
    start = 0
    for group, rewards_G in zip(scored.groups, scored.rewards, strict=True):
        if group:
            advantage_G, reference, skew = against_one(group, rewards_G)
            skewed = skew > max_skew
            rows.append(torch.zeros_like(advantage_G) if skewed else advantage_G)
            if skewed:
                dropped |= dict.fromkeys(range(start, start + len(group)), "skewed")
            dropped[start + reference] = "reference"
            skews.append(skew)
        start += len(group)
    kept = fmean(skew <= max_skew for skew in skews) if skews else 0.0
    metrics = {"brpo/kept": kept, "brpo/skew": fmean(skews)} if skews else {}
    return Estimate.of_groups(rows)._replace(dropped=dropped, metrics=metrics)


def against_one(group: Group, rewards_G: Tensor) -> tuple[Tensor, int, float]:
    """Better or worse than the reference [G], which has 0; its place; the skew."""
    reference = reference_of(group)
    better_G = (rewards_G > rewards_G[reference]).double() * 2 - 1
    better_G[reference] = 0.0
    return better_G, reference, abs(float(better_G.sum())) / max(1, len(group) - 1)
