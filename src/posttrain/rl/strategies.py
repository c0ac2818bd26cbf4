"""Rollout strategies: what is asked for in, rollouts out, in the same order.

`play` writes one response for each `Ask`, with the environment in between. To add a strategy,
write the function, name its paper in the docstring, and add a line to ROLLOUT_STRATEGIES.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.rl.asks import Ask, Play
from posttrain.rl.ce_rm import ce_rm
from posttrain.rl.rollout import Rollout

__all__ = ["ROLLOUT_STRATEGIES", "Ask", "Play", "Strategy", "external", "plain"]

Strategy = Callable[..., list[Rollout]]


def plain(
    play: Play, asks: Sequence[Ask], _demonstrations: Mapping[str, Rollout], /
) -> list[Rollout]:
    """Each response is the policy's own, from its first token to its last."""
    return play(asks)


def external(
    play: Play,
    asks: Sequence[Ask],
    demonstrations: Mapping[str, Rollout],
    /,
    *,
    external_per_group: Annotated[int, Field(ge=0)] = 1,
) -> list[Rollout]:
    """RL-PLUS: a worked solution takes a place in each group (arXiv:2508.00222).

    The first `external_per_group` places of a group whose prompt has a demonstration are that
    demonstration, whole, as `source` external; the policy writes all others.
    """
    shown = [
        replace(demonstrations[ask.prompt.id], place=ask.place)
        if ask.place < external_per_group and ask.prompt.id in demonstrations
        else None
        for ask in asks
    ]
    wanted = [ask for ask, given in zip(asks, shown, strict=True) if given is None]
    own = iter(play(wanted) if wanted else [])
    return [given or next(own) for given in shown]


ROLLOUT_STRATEGIES: dict[str, Strategy] = {
    "plain": plain,
    "external": external,
    "ce_rm": ce_rm,
}
