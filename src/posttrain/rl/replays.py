"""Replays: the lessons of a step in, the batches of its updates out, one at least.

A replay's state is JSON. To add one, write the class, name its paper in the docstring, and add a
line to REPLAYS.
"""

from collections.abc import Callable
from typing import Any, Protocol

from posttrain.rl.experience import Lesson


class Replay(Protocol):
    """Composes batches."""

    def compose(self, fresh: list[Lesson], step: int) -> list[list[Lesson]]:
        """The batches to learn from, one update each."""

    def state(self) -> Any:
        """What a checkpoint needs, as JSON."""

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""


class Fresh:
    """Each lesson once, in the step that made it."""

    def compose(self, fresh: list[Lesson], step: int) -> list[list[Lesson]]:
        return [fresh]

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing to restore."""


REPLAYS: dict[str, Callable[..., Replay]] = {"fresh": Fresh}
