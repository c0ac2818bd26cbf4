"""PPO's critic: one network that every rollout teaches."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from posttrain.rl.critics.value_model import Count, Facts, Rate, Share, Some, ValueModel, fit
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Values


class Single:
    """One critic, asked before it learns from what it is asked about (PPO, arXiv:1707.06347).

    It is the policy's first `layers` layers (0: all) with a scalar head, learns by mean squared
    error from rewards discounted by `gamma` per token, in `epochs` steps of an AdamW of its own,
    and keeps within `clip` of its old values in them, if given.
    """

    def __init__(
        self,
        policy: Path,
        seed: int,
        *,
        layers: Count = 0,
        learning_rate: Rate = 1e-5,
        gamma: Share = 1.0,
        epochs: Some = 1,
        clip: Rate | None = None,
        micro_batch_tokens: Count = 0,
    ) -> None:
        self.gamma, self.epochs, self.clip = gamma, epochs, clip
        self.model = ValueModel(
            policy,
            f"{seed}/critic/0",
            layers=layers,
            learning_rate=learning_rate,
            micro_batch_tokens=micro_batch_tokens,
        )
        self._metrics: dict[str, float] = {}

    def assess(self, groups: Sequence[Group]) -> Values | None:
        facts = Facts.of(groups, self.gamma)
        before = self.model.learn(facts, epochs=self.epochs, clip=self.clip)
        self._metrics = fit(before, facts)
        return Values(before, [])

    def metrics(self) -> dict[str, float]:
        return self._metrics

    def tensors(self) -> dict[str, Tensor]:
        return self.model.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.model.restore(tensors)
