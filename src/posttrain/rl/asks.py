"""What a strategy asks of the policy."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from posttrain.records import Prompt
from posttrain.rl.rollout import Rollout


class Ask(NamedTuple):
    """The `place`-th response of a prompt's group; `begun` is what there is of it already."""

    prompt: Prompt
    seed: int
    begun: Rollout | None = None
    place: int = 0


Play = Callable[[Sequence[Ask]], list[Rollout]]
