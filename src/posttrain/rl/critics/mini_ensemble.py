"""AsyPPO's critics: several small ones, each taught by its own part of every group."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from posttrain.rl.critics.value_model import Count, Facts, Rate, Share, Some, ValueModel, fit
from posttrain.rl.rollout import Group
from posttrain.rl.scored import Values


class MiniEnsemble:
    """Several critics, each taught by its own shard of every group (AsyPPO, arXiv:2510.01656).

    The `members` differ in their heads' first weights and in what they are taught; their mean is
    the value, their standard deviation (over their number) the spread. As in the paper they learn
    first, and then all of them score all tokens. The measures of fit are from before, each
    member's on its own shard. The other options are those of `single`, the numbers assumed.
    """

    def __init__(
        self,
        policy: Path,
        seed: int,
        *,
        members: Annotated[int, Field(ge=2)] = 2,
        layers: Count = 0,
        learning_rate: Rate = 1e-5,
        gamma: Share = 1.0,
        epochs: Some = 1,
        clip: Rate | None = None,
        micro_batch_tokens: Count = 0,
    ) -> None:
        self.gamma, self.epochs, self.clip = gamma, epochs, clip
        self.models = [
            ValueModel(
                policy,
                f"{seed}/critic/{member}",
                layers=layers,
                learning_rate=learning_rate,
                micro_batch_tokens=micro_batch_tokens,
            )
            for member in range(members)
        ]
        self._metrics: dict[str, float] = {}

    def assess(self, groups: Sequence[Group]) -> Values | None:
        facts = Facts.of(groups, self.gamma)
        before = [torch.zeros(len(rollout.tokens)).double() for rollout in facts.rollouts]
        for model, shard in zip(self.models, shards(groups, len(self.models)), strict=True):
            own = model.learn(facts.some(shard), epochs=self.epochs, clip=self.clip)
            for place, values_T in zip(shard, own, strict=True):
                before[place] = values_T
        values = joined([model.values(facts.rollouts) for model in self.models])
        self._metrics = fit(before, facts)
        if self._metrics:
            spread = torch.cat(values.spread)[torch.cat(facts.counts)]
            self._metrics["critic/spread"] = float(spread.mean())
            self._metrics["critic/agreed_exactly"] = float((spread == 0).double().mean())
        return values

    def metrics(self) -> dict[str, float]:
        return self._metrics

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{member}/{name}": tensor
            for member, model in enumerate(self.models)
            for name, tensor in model.tensors().items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for member, model in enumerate(self.models):
            prefix = f"{member}/"
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            model.restore(own)


def shards(groups: Sequence[Group], members: int) -> list[list[int]]:
    """Which rollouts teach which member: those of a group in turn, from a new member each group.

    Another writer's rollouts teach nobody.
    """
    found: list[list[int]] = [[] for _ in range(members)]
    place = 0
    for number, group in enumerate(groups):
        turn = number
        for rollout in group:
            if rollout.source != "external":
                found[turn % members].append(place)
                turn += 1
            place += 1
    return found


def joined(each: Sequence[Sequence[Tensor]]) -> Values:
    """The members' values [member][rollout][T] as their mean and spread."""
    stacked = [torch.stack(rows) for rows in zip(*each, strict=True)]
    means = [values.mean(dim=0) for values in stacked]
    pairs = zip(stacked, means, strict=True)
    return Values(means, [(values - mean).square().mean(dim=0).sqrt() for values, mean in pairs])
