"""The reward of CE-RM: how often the better response of a pair is scored above the other."""

from collections.abc import Sequence
from statistics import fmean

from posttrain.reward_model.generative.pairs import case_of
from posttrain.reward_model.protocol import Judge
from posttrain.rl.ce_rm import in_form, score_of
from posttrain.rl.reference import groups_in
from posttrain.rl.rollout import Group, Rollout


def ce_rm(rollouts: Sequence[Rollout], _judge: Judge | None, /) -> list[float]:
    """Criteria get the share of pairs of scores in the right order (CE-RM, arXiv:2601.20327).

    Under criteria m with scores s_i of the chosen and s_j of the rejected response: R_m =
    mean_ij 1[s_i > s_j], r_i = mean_j 1[s_i > s_j] and r_j = mean_i 1[s_i > s_j]. A tie, and what
    cannot be read, is 0, as are responses to other tasks. The equations are assumed: the paper's
    were not to be had.
    """
    return [reward for group in groups_in(rollouts) for reward in group_rewards(group)]


def group_rewards(group: Group) -> list[float]:
    """The rewards of one group."""
    cases = [case_of(rollout.prompt) for rollout in group]
    own = [score_of(rollout) for rollout in group]
    scores: dict[tuple[str, int], list[float]] = {}
    for case, score in zip(cases, own, strict=True):
        if case:
            scores.setdefault((case.role, case.under), []).append(score)
    found = []
    for rollout, case, score in zip(group, cases, own, strict=True):
        under = case.under if case else 0
        chosen, rejected = scores.get(("chosen", under), []), scores.get(("rejected", under), [])
        match case.role if case and in_form(rollout) else None:
            case "criteria":
                found.append(ordered(chosen, rejected))
            case "chosen":
                found.append(ordered([score], rejected))
            case "rejected":
                found.append(ordered(chosen, [score]))
            case _:
                found.append(0.0)
    return found


def ordered(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The share of pairs whose first is above; 0 without pairs, and for NaN."""
    return fmean(a > b for a in higher for b in lower) if higher and lower else 0.0
