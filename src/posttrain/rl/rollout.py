"""The two records that every plug-in of the loop reads: `Rollout` and `PromptStats`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from posttrain.engines import Completion
from posttrain.records import Prompt


@dataclass(frozen=True)
class Rollout:
    """One completion of one prompt, and what became of it.

    `behaviour_logps`: nats per token under the policy that wrote it, at its temperature;
    `version`: the optimiser step of that policy; `reward_parts`: part -> unweighted reward.
    """

    prompt: Prompt
    text: str
    tokens: tuple[int, ...]
    behaviour_logps: tuple[float, ...]
    truncated: bool
    version: int = 0
    reward_parts: dict[str, float] = field(default_factory=dict)
    reward: float = float("nan")

    @classmethod
    def of(cls, prompt: Prompt, completion: Completion, version: int) -> "Rollout":
        """Wrap what an engine returned."""
        return cls(
            prompt,
            completion.text,
            completion.tokens,
            completion.logps,
            completion.truncated,
            version,
        )

    def rewarded(self, parts: dict[str, float], reward: float) -> "Rollout":
        """The same rollout with its reward."""
        return replace(self, reward_parts=parts, reward=reward)


@dataclass(frozen=True)
class PromptStats:
    """What the policy did on one prompt so far; `last_seen` is the step it was last drawn."""

    count: int = 0
    total: float = 0.0
    last_seen: int = -1

    @property
    def mean(self) -> float:
        """Mean reward; NaN before the first rollout."""
        return self.total / self.count if self.count else float("nan")

    def observe(self, rewards: Sequence[float], step: int) -> "PromptStats":
        """These statistics with one more group."""
        return PromptStats(self.count + len(rewards), self.total + sum(rewards), step)


Group = tuple[Rollout, ...]
"""The G rollouts of one prompt."""
