"""Advantage transforms: an estimate in, a changed estimate out; they run in the order given.

To add one, write the function, name its paper in the docstring, and add a line to
ADVANTAGE_TRANSFORMS.
"""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from posttrain.errors import ConfigError, Fault
from posttrain.rl.returns import written
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Estimate, PolicyView, Scored, Values

Transform = Callable[..., Estimate]
Share = Annotated[float, Field(ge=0, le=1)]


def bounded(estimate: Estimate, _scored: Scored, /, *, limit: float = 5.0) -> Estimate:
    """Clamp every advantage to [-limit, limit]; the limit is ours."""
    cut = [advantage.clamp(-limit, limit) for advantage in estimate.advantages]
    pairs = zip(cut, estimate.advantages, strict=True)
    hit = sum(int((new != old).sum()) for new, old in pairs)
    share = hit / max(1, sum(map(len, cut)))
    return estimate._replace(advantages=cut, metrics=estimate.metrics | {"bounded/share": share})


def mgpo(
    estimate: Estimate,
    scored: Scored,
    /,
    *,
    lam: Annotated[float, Field(ge=0)] = 1.0,
    correct_above: float = 0.5,
) -> Estimate:
    """Weigh a group by how near to half of it is correct (MGPO of VibeThinker, arXiv:2511.06221).

    The weight is exp(-lam D), D the Kullback-Leibler distance in nats of the share correct from
    1/2. `lam` 1 is assumed; 0 changes nothing. Correct: the reward is above `correct_above`, ours;
    another writer's response does not count.
    """
    weights = [even_odds_weight(group, lam, correct_above) for group in scored.groups]
    each = [w for w, group in zip(weights, scored.groups, strict=True) for _ in group]
    weighed = [a * w for a, w in zip(estimate.advantages, each, strict=True)]
    metrics = {"mgpo/weight": fmean(weights)} if weights else {}
    return estimate._replace(advantages=weighed, metrics=estimate.metrics | metrics)


def even_odds_weight(group: Group, lam: float, correct_above: float) -> float:
    """exp(-lam KL(share correct || 1/2)); 1 for a group without own responses."""
    own = [rollout.reward > correct_above for rollout in group if rollout.source != "external"]
    share = sum(own) / len(own) if own else 0.5
    distance = sum(p * math.log(2 * p) for p in (share, 1 - share) if p)
    return math.exp(-lam * distance)


def ace(
    estimate: Estimate,
    scored: Scored,
    /,
    *,
    alpha: Annotated[float, Field(ge=0)] = 1.0,
    cap: float = 10.0,
    length_norm: bool = False,
) -> Estimate:
    """Punish what went wrong with confidence the more (ACE, arXiv:2602.21420).

    Negative advantages are multiplied by 1 + alpha softplus(c), where c, at most `cap`, is the log
    of the response's chance now over its chance at the start of the run, summed over its tokens,
    or their mean with `length_norm`. alpha 1 and cap 10 are assumed.
    """
    wrong = [i for i, advantage in enumerate(estimate.advantages) if (advantage < 0).any()]
    if not wrong:
        return estimate
    confidence = gained(scored, wrong, mean=length_norm).clamp(max=cap)
    factors = 1 + alpha * softplus(confidence)
    advantages = list(estimate.advantages)
    for place, factor in zip(wrong, factors, strict=True):
        old = advantages[place]
        advantages[place] = torch.where(old < 0, old * factor, old)
    metrics = {
        "ace/factor": float(factors.mean()),
        "ace/confident": float((confidence > 0).double().mean()),
        "ace/wrong_magnitude": fmean(float(-advantages[place].min()) for place in wrong),
    }
    return estimate._replace(advantages=advantages, metrics=estimate.metrics | metrics)


def gained(scored: Scored, places: list[int], *, mean: bool) -> Tensor:
    """How much likelier, in nats, these rollouts became since the start of the run [rollouts]."""
    rollouts = [scored.rollouts[place] for place in places]
    policy = _policy(scored)
    trios = zip(rollouts, policy.logps(rollouts), policy.reference_logps(rollouts), strict=True)
    found = []
    for rollout, now_T, then_T in trios:
        gain = float((now_T - then_T)[written(rollout)].sum())
        found.append(gain / max(1, rollout.learnable) if mean else gain)
    return torch.tensor(found, dtype=torch.float64)


def asyppo_masks(
    estimate: Estimate, scored: Scored, /, *, agreed: Share = 0.2, disputed: Share = 0.2
) -> Estimate:
    """Learn not from tokens on which the critics agree (AsyPPO, arXiv:2510.01656).

    Of all tokens that the policy wrote in the batch, ranked by the critics' spread, the share
    `agreed` at the low end gets no advantage (the paper's k), and the share `disputed` at the high
    end no entropy bonus (its h). Ranks part ties by place, so that the shares hold exactly.
    """
    spreads = _spread(scored).spread
    own = torch.cat([written(rollout) for rollout in scored.rollouts])
    rank = torch.empty(int(own.sum()), dtype=torch.long)
    rank[torch.cat(spreads)[own].argsort(stable=True)] = torch.arange(len(rank))
    low, high = round(agreed * len(rank)), len(rank) - round(disputed * len(rank))
    learnt, excited = torch.ones(len(own)).double(), torch.ones(len(own)).double()
    learnt[own] = (rank >= low).double()
    excited[own] = (rank < high).double()
    lengths = [len(row) for row in spreads]
    pairs = zip(estimate.advantages, torch.split(learnt, lengths), strict=True)
    advantages = [advantage.expand(len(mask_T)) * mask_T for advantage, mask_T in pairs]
    weights = list(torch.split(excited, lengths))
    if estimate.entropy_weights is not None:
        weights = [a * b for a, b in zip(estimate.entropy_weights, weights, strict=True)]
    metrics = {
        "mask/agreed": low / max(1, len(rank)),
        "mask/disputed": 1 - high / max(1, len(rank)),
    }
    return estimate._replace(
        advantages=advantages, entropy_weights=weights, metrics=estimate.metrics | metrics
    )


def _policy(scored: Scored) -> PolicyView:
    if scored.policy is None:
        raise ConfigError(
            Fault("no policy", "rl.transforms", "`ace` asks it for log-probs", "give one")
        )
    return scored.policy


def _spread(scored: Scored) -> Values:
    if scored.values is None or not scored.values.spread:
        raise ConfigError(
            Fault(
                "no critics to agree",
                "rl.transforms",
                "`asyppo_masks` looks at the spread of several critics",
                "take `critic: mini_ensemble`, or leave the masks out",
            )
        )
    return scored.values


ADVANTAGE_TRANSFORMS: dict[str, Transform] = {
    "bounded": bounded,
    "mgpo": mgpo,
    "ace": ace,
    "asyppo_masks": asyppo_masks,
}
