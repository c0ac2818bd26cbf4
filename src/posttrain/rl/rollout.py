"""The two records that every plug-in of the loop reads: `Rollout` and `PromptStats`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from posttrain.records import Prompt

Source = Literal["fresh", "resumed", "replay", "external"]


@dataclass(frozen=True)
class Rollout:
    """One response to one prompt, and what became of it.

    `behaviour_logps`: nats per token under the policy that wrote it, at its temperature, 0 where
    it was not the policy's; `versions`: the step of the policy that wrote each token; `acted`:
    which tokens the policy wrote, the others being the environment's, all if empty;
    `reward_parts`: part -> unweighted reward; `finished` False: it was stopped to go on later;
    `place`: which of its group it is.
    """

    prompt: Prompt
    text: str
    tokens: tuple[int, ...]
    behaviour_logps: tuple[float, ...]
    truncated: bool
    versions: tuple[int, ...] = ()
    acted: tuple[bool, ...] = ()
    source: Source = "fresh"
    finished: bool = True
    turns: int = 1
    place: int = 0
    reward_parts: dict[str, float] = field(default_factory=dict)
    reward: float = float("nan")

    @property
    def version(self) -> int:
        """The oldest policy that wrote part of it; 0 where nobody said."""
        return min(self.versions, default=0)

    @property
    def learnable(self) -> int:
        """How many of its tokens the policy wrote."""
        return sum(self.acted) if self.acted else len(self.tokens)

    @property
    def chunks(self) -> list[range]:
        """The policy's stretches between two words of the environment, as ranges of tokens."""
        acted = self.acted or (True,) * len(self.tokens)
        found: list[range] = []
        for at, own in enumerate(acted):
            if own and at and acted[at - 1]:
                found[-1] = range(found[-1].start, at + 1)
            elif own:
                found.append(range(at, at + 1))
        return found

    def rewarded(self, parts: dict[str, float], reward: float) -> "Rollout":
        """The same rollout with its reward."""
        return replace(self, reward_parts=parts, reward=reward)

    def state(self) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        return asdict(self) | {"prompt": self.prompt.model_dump(mode="json")}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """What `state` was taken of."""
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        return cls(**{**state, **lists, "prompt": Prompt.model_validate(state["prompt"])})


@dataclass(frozen=True)
class PromptStats:
    """What the policy did on one prompt so far; `last_seen` is the step it was last drawn.

    `total` and `squares` sum the rewards and their squares over `count` rollouts.
    """

    count: int = 0
    total: float = 0.0
    last_seen: int = -1
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean reward; NaN before the first rollout."""
        return self.total / self.count if self.count else float("nan")

    @property
    def variance(self) -> float:
        """Variance of the rewards, over their count; NaN before the first rollout."""
        return max(0.0, self.squares / self.count - self.mean**2) if self.count else float("nan")

    def observe(self, rewards: Sequence[float], step: int) -> "PromptStats":
        """These statistics with one more group."""
        squares = sum(reward * reward for reward in rewards)
        return PromptStats(
            self.count + len(rewards), self.total + sum(rewards), step, self.squares + squares
        )


Group = tuple[Rollout, ...]
"""The rollouts of one prompt, G of them unless the budget says otherwise."""


def kept(group: Group) -> list[dict[str, Any]]:
    """A group as JSON."""
    return [rollout.state() for rollout in group]


def revived(state: Sequence[Mapping[str, Any]]) -> Group:
    """What `kept` was given."""
    return tuple(Rollout.restored(rollout) for rollout in state)
