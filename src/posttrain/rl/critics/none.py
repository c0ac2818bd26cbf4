"""No critic at all."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from posttrain.rl.rollout import Group
from posttrain.rl.scored import Values


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
