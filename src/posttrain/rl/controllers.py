"""Controllers: when completions are drawn, and how old they may get before the update sees them.

A controller's state is JSON, so that a resumed run goes on with what was in flight. To add one,
write the class, name its paper in the docstring, and add a line to CONTROLLERS.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from posttrain.rl.experience import Draw, collect
from posttrain.rl.explorer import Explorer


class Controller(Protocol):
    """Collects the groups of each step."""

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        """`wanted` groups to learn from at `step`, fewer where there are no more."""

    def pending(self) -> int:
        """Completions that are finished and wait."""

    def state(self) -> Any:
        """What a checkpoint needs, as JSON."""

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""


class Synchronous:
    """Draw, learn, draw: every group is from the policy that learns from it."""

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        return collect(partial(explorer.groups, step), wanted, explorer.config.max_draws)

    def pending(self) -> int:
        return 0

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing to restore."""


CONTROLLERS: dict[str, Callable[..., Controller]] = {"synchronous": Synchronous}
