"""Critics: what predicts the return of each token for the estimators that ask for it.

To add one, write the class, name its paper in the docstring, and add a line to CRITICS.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from posttrain.rl.rollout import Group
from posttrain.rl.scored import Values


class Critic(Protocol):
    """Made from the folder of the policy that the run begins with, and a seed."""

    def assess(self, groups: Sequence[Group]) -> Values | None:
        """The values of every rollout's tokens; the critic learns from the groups, too."""

    def metrics(self) -> dict[str, float]:
        """Of the last assessment, for the journal."""

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the optimiser's moments, for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""


class Nobody:
    """No critic: estimators compare the rollouts of a group."""

    def __init__(self, policy: Path, seed: int) -> None:
        """There is nothing to load."""

    def assess(self, groups: Sequence[Group]) -> Values | None:
        return None

    def metrics(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """There is nothing to restore."""


CRITICS: dict[str, Callable[..., Critic]] = {"none": Nobody}
