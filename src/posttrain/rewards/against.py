"""Whether a judge prefers a response to its group's reference: what BRPO learns from."""

from collections.abc import Sequence

from posttrain.reward_model.protocol import Judge, PairwiseJudge
from posttrain.rl.reference import groups_in, reference_of
from posttrain.rl.rollout import Rollout


def against_reference(rollouts: Sequence[Rollout], judge: Judge) -> list[float]:
    """1 where a response is preferred, -1 where it is not or not surely, 0 for a reference.

    No answer of the judge is no preference: a judge that is away makes groups that BRPO drops.
    """
    groups = list(groups_in(rollouts))
    references = [reference_of(group) for group in groups]
    duels = [
        (rollout, group[reference])
        for group, reference in zip(groups, references, strict=True)
        for place, rollout in enumerate(group)
        if place != reference
    ]
    wins = iter(preferred(judge, duels))
    return [
        0.0 if place == reference else (1.0 if next(wins) else -1.0)
        for group, reference in zip(groups, references, strict=True)
        for place in range(len(group))
    ]


def preferred(judge: Judge, duels: Sequence[tuple[Rollout, Rollout]]) -> list[bool]:
    """Whether the first of each two is better: in both orders, or by its own score."""
    prompts = [one.prompt.text for one, _ in duels]
    ours, theirs = [one.text for one, _ in duels], [other.text for _, other in duels]
    if not duels:
        return []
    if isinstance(judge, PairwiseJudge):
        # One call, so that a judge that batches has all of it.
        both = judge.compare(prompts * 2, ours + theirs, theirs + ours)
        half = len(duels)
        return [
            shown > 0 > swapped for shown, swapped in zip(both[:half], both[half:], strict=True)
        ]
    scores = judge.score(prompts * 2, ours + theirs)
    return [
        mine > other for mine, other in zip(scores[: len(duels)], scores[len(duels) :], strict=True)
    ]
