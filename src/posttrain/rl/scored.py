"""What advantages are estimated from, and what an estimate is.

Rollouts are counted in one row over all groups, in their order. Shapes: G rollouts of a group,
T tokens of a rollout.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from posttrain.rl.rollout import Group, PromptStats, Rollout


class PolicyView(Protocol):
    """What an estimator may ask of the policy that is being trained; float64, on CPU."""

    def logps(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Log-probs in nats of each rollout's tokens [T] now, before the update."""

    def reference_logps(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """The same under the policy that the run began with."""

    def gradient_norms(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Squared norm of the gradient of each rollout's log-prob, summed over its tokens."""


class Values(NamedTuple):
    """A critic's word on each token of each rollout [T]: the expected return in rewards, and the
    spread of its members, empty for one alone."""

    mean: list[Tensor]
    spread: list[Tensor]


@dataclass(frozen=True)
class Scored:
    """Groups with their rewards; `stats` are the prompts' from before this step was drawn."""

    groups: Sequence[Group]
    stats: Mapping[str, PromptStats] = field(default_factory=dict)
    values: Values | None = None
    policy: PolicyView | None = None

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group by group."""
        return [rollout for group in self.groups for rollout in group]

    @property
    def rewards(self) -> list[Tensor]:
        """The rewards of each group [G], float64."""
        return [torch.tensor([r.reward for r in group]).double() for group in self.groups]


class Estimate(NamedTuple):
    """One advantage per rollout [1], or one per token [T], float64.

    `dropped`: rollout -> why it is left out of the update; `entropy_weights`: per token [T], how
    much of the entropy bonus it gets, all of it where None; `metrics` are means for the journal.
    """

    advantages: list[Tensor]
    dropped: dict[int, str] = {}
    entropy_weights: list[Tensor] | None = None
    metrics: dict[str, float] = {}

    @classmethod
    def of_groups(cls, groups: Iterable[Tensor], **metrics: float) -> "Estimate":
        """From one number per rollout, given group by group [G]."""
        each = [value.reshape(1) for group in groups for value in group.double()]
        return cls(each, metrics=metrics)
