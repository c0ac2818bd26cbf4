"""Critics: what predicts the return of each token for the estimators that ask for it.

To add one, write the class in a file of its name, name its paper in the docstring, and add a line
to CRITICS.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from posttrain.rl.critics.mini_ensemble import MiniEnsemble
from posttrain.rl.critics.none import Nobody
from posttrain.rl.critics.single import Single
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


CRITICS: dict[str, Callable[..., Critic]] = {
    "none": Nobody,
    "single": Single,
    "mini_ensemble": MiniEnsemble,
}
