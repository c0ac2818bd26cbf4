"""Groups in a row of rollouts, and the reference that BRPO compares a group with."""

from collections.abc import Iterator, Sequence

from posttrain.records import content_id
from posttrain.rl.rollout import Group, Rollout


def groups_in(rollouts: Sequence[Rollout]) -> Iterator[Group]:
    """The groups, which stand one after another, each in the order of its places."""
    group: list[Rollout] = []
    for rollout in rollouts:
        last = group[-1] if group else None
        if last and (last.prompt.id != rollout.prompt.id or rollout.place <= last.place):
            yield tuple(group)
            group = []
        group.append(rollout)
    if group:
        yield tuple(group)


def reference_of(group: Group) -> int:
    """The place of the reference, uniform over the group (BRPO, arXiv:2506.00103).

    A digest of what was drawn decides, and with it the run's seed: whoever asks, and whenever, a
    group has one reference.
    """
    written = (" ".join(map(str, rollout.tokens)) for rollout in group)
    return int(content_id(group[0].prompt.id, *written), 16) % len(group)
