"""Prompt samplers: the pool of prompts and what is known about them in, the next prompts out.

A sampler keeps no state of its own; what must survive a kill is in the `Pool`. To add one,
write the function and a line in PROMPT_SAMPLERS.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from posttrain.records import Prompt
from posttrain.rl.rollout import Group, PromptStats


class Pool:
    """The prompts in an endless order, a new permutation each epoch, and their statistics."""

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        self.prompts = prompts
        self.seed = seed
        self.cursor = 0
        self.stats: dict[str, PromptStats] = {}
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

    def observe(self, groups: Sequence[Group], step: int) -> None:
        """Note the rewards of finished groups, those that are numbers."""
        for group in groups:
            key = group[0].prompt.id
            rewards = [rollout.reward for rollout in group if math.isfinite(rollout.reward)]
            self.stats[key] = self.stats.get(key, PromptStats()).observe(rewards, step)

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as JSON."""
        stats = {key: [s.count, s.total, s.last_seen] for key, s in self.stats.items()}
        return {"cursor": self.cursor, "stats": stats}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.cursor = state["cursor"]
        self.stats = {key: PromptStats(*values) for key, values in state["stats"].items()}


def uniform(pool: Pool, count: int, /) -> list[Prompt]:
    """Every prompt once an epoch, in a new order each time."""
    return [pool.next() for _ in range(count)]


def difficulty_band(
    pool: Pool, count: int, /, *, low: float = 0.05, high: float = 0.95, revisit: int = 20
) -> list[Prompt]:
    """Pass over prompts whose mean reward so far is outside [low, high]: too hard or too easy.

    Unseen prompts are taken, and those last drawn `revisit` or more steps ago are tried
    again. Looks at most one epoch ahead, then takes what it passed over, in order.
    """
    taken: list[Prompt] = []
    passed: list[Prompt] = []
    now = max((stats.last_seen for stats in pool.stats.values()), default=0)
    for _ in range(max(count, len(pool.prompts))):
        if len(taken) == count:
            break
        prompt = pool.next()
        stats = pool.stats.get(prompt.id, PromptStats())
        stale = now - stats.last_seen >= revisit
        wanted = not stats.count or stale or low <= stats.mean <= high
        (taken if wanted else passed).append(prompt)
    return (taken + passed)[:count]


PROMPT_SAMPLERS: dict[str, Callable[..., list[Prompt]]] = {
    "uniform": uniform,
    "difficulty_band": difficulty_band,
}
