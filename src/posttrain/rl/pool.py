"""The pool: the prompts in an endless order, and what the policy did on each of them so far."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from posttrain.records import Prompt
from posttrain.rl.rollout import Group, PromptStats


class Seen(NamedTuple):
    """The rewards of one finished group."""

    prompt_id: str
    rewards: list[float]


class Pool:
    """The prompts, a new permutation each epoch, and their statistics.

    Samplers keep no state of their own: `memory` holds what a sampler must not forget, under its
    name and as JSON; `recent` are the groups seen since the last draw. `embed` returns one vector
    per prompt [P, H], from the policy that the run starts with.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        embed: Callable[[Sequence[Prompt]], Tensor] | None = None,
    ) -> None:
        self.prompts = prompts
        self.seed = seed
        self.embed = embed
        self.cursor = 0
        self.draws = 0
        self.stats: dict[str, PromptStats] = {}
        self.memory: dict[str, Any] = {}
        self.recent: list[Seen] = []
        self._epoch = -1
        self._order: list[int] = []

    def next(self) -> Prompt:
        """The prompt under the cursor; moves the cursor on."""
        epoch, place = divmod(self.cursor, len(self.prompts))
        if epoch != self._epoch:
            self._order = list(range(len(self.prompts)))
            random.Random(f"{self.seed}/prompts/{epoch}").shuffle(self._order)
            self._epoch = epoch
        self.cursor += 1
        return self.prompts[self._order[place]]

    def first(self, count: int) -> list[Prompt]:
        """The first prompts of the order; the cursor stays."""
        probe = Pool(self.prompts, self.seed)
        return [probe.next() for _ in range(min(count, len(self.prompts)))]

    def rng(self, purpose: str) -> random.Random:
        """Random numbers of this draw and no other, the same in a resumed run."""
        return random.Random(f"{self.seed}/{purpose}/{self.draws}")

    def drawn(self) -> None:
        """A draw is over: the next one has new random numbers and sees new groups."""
        self.draws += 1
        self.recent = []

    def observe(self, groups: Sequence[Group], step: int) -> None:
        """Note the rewards of finished groups, those that are numbers."""
        for group in groups:
            key = group[0].prompt.id
            rewards = [rollout.reward for rollout in group if math.isfinite(rollout.reward)]
            self.stats[key] = self.stats.get(key, PromptStats()).observe(rewards, step)
            self.recent.append(Seen(key, rewards))

    def metrics(self) -> dict[str, float]:
        """What the sampler said of its last draw, for the journal."""
        return dict(self.memory.get("metrics", {}))

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as JSON."""
        stats = {key: [s.count, s.total, s.last_seen, s.squares] for key, s in self.stats.items()}
        own = {"cursor": self.cursor, "draws": self.draws, "memory": self.memory}
        return own | {"stats": stats, "recent": self.recent}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.cursor, self.draws, self.memory = state["cursor"], state["draws"], state["memory"]
        self.stats = {key: PromptStats(*values) for key, values in state["stats"].items()}
        self.recent = [Seen(*each) for each in state["recent"]]
