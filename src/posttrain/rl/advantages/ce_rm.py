"""CE-RM: criteria, evaluations of the better and of the worse response, each among its like."""

from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from posttrain.reward_model.generative.pairs import case_of
from posttrain.rl.advantages.centring import centre, deviation
from posttrain.rl.ce_rm import in_form, score_of
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Estimate, Scored


def ce_rm(
    scored: Scored,
    /,
    *,
    scale: Literal["sample_std", "population_std"] = "sample_std",
    eps: float = 1e-6,
) -> Estimate:
    """(r - mean) / (std + eps) within each condition of a group (CE-RM, arXiv:2601.20327).

    The conditions are criteria, chosen and rejected: 4, 8 and 8 of 20. A group of another task has
    one condition, and this is GRPO. Which std is meant is not told.
    """
    rows = []
    for group, rewards_G in zip(scored.groups, scored.rewards, strict=True):
        advantage_G = torch.zeros_like(rewards_G)
        for places in conditions(group):
            centred = centre(rewards_G[places])
            spread = deviation(centred, sample=scale == "sample_std")
            advantage_G[places] = centred / (spread + eps)
        rows.append(advantage_G)
    return Estimate.of_groups(rows, **told(scored))


def conditions(group: Group) -> list[Tensor]:
    """The places of each condition."""
    found: dict[str, list[int]] = {}
    for place, rollout in enumerate(group):
        case = case_of(rollout.prompt)
        found.setdefault(case.role if case else "", []).append(place)
    return [torch.tensor(places) for places in found.values()]


def told(scored: Scored) -> dict[str, float]:
    """How much of what was written could be read, and how the judge did."""
    turns = [(r, case_of(r.prompt)) for r in scored.rollouts]
    judged = [(r, case) for r, case in turns if case and case.role != "pair"]
    if not judged:
        return {}
    found = {"ce_rm/in_form": fmean(in_form(r) for r, _ in judged)}
    for role in ("chosen", "rejected"):
        scores = [score_of(r) for r, case in judged if case.role == role]
        known = [score for score in scores if score == score]
        if known:
            found[f"ce_rm/{role}_score"] = fmean(known)
    accuracy = [r.reward for r, case in judged if case.role == "criteria"]
    return found | {"ce_rm/accuracy": fmean(accuracy)} if accuracy else found
