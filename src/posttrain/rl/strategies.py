"""Rollout strategies: what is asked for in, rollouts out, in the same order.

`play` writes one response for each `Ask`, with the environment in between. To add a strategy,
write the function, name its paper in the docstring, and add a line to ROLLOUT_STRATEGIES.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from posttrain.records import Prompt
from posttrain.rl.rollout import Rollout


class Ask(NamedTuple):
    """One response wanted; `begun` is what there is of it already."""

    prompt: Prompt
    seed: int
    begun: Rollout | None = None


Play = Callable[[Sequence[Ask]], list[Rollout]]
Strategy = Callable[..., list[Rollout]]


def plain(
    play: Play, asks: Sequence[Ask], _demonstrations: Mapping[str, Rollout], /
) -> list[Rollout]:
    """Each response is the policy's own, from its first token to its last."""
    return play(asks)


ROLLOUT_STRATEGIES: dict[str, Strategy] = {"plain": plain}
