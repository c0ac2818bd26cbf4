"""The explorer: draws prompts from the pool, has the engine answer them, and scores the answers."""

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from posttrain.engines import Engine, Sampling
from posttrain.records import Prompt
from posttrain.rewards import Judge, Reward, score
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.samplers import Pool

if TYPE_CHECKING:
    from posttrain.rl.stage import RLConfig


class Explorer(NamedTuple):
    """What it takes to turn prompts into scored groups."""

    config: "RLConfig"
    engine: Engine
    pool: Pool
    sample: Callable[[Pool, int], list[Prompt]]
    rewards: Mapping[str, Reward]
    judge: Judge | None

    def draw(self, step: int, attempt: int, count: int) -> list[Group]:
        """`count` scored groups; the pool learns of their rewards."""
        prompts = self.sample(self.pool, count)
        completions = self.engine.generate(
            [prompt.text for prompt in prompts], self._sampling(step, attempt)
        )
        groups = [
            tuple(Rollout.of(prompt, completion, version=step) for completion in row)
            for prompt, row in zip(prompts, completions, strict=True)
        ]
        scored = score(groups, self.rewards, self.config.reward_weights, self.judge)
        self.pool.observe(scored, step)
        return scored

    def _sampling(self, step: int, attempt: int) -> Sampling:
        """The seed comes from the step and the attempt, so a resumed run draws the same."""
        text = f"{self.config.seed}/rollouts/{step}/{attempt}"
        return Sampling(
            samples=self.config.group_size,
            temperature=self.config.temperature,
            top_p=self.config.top_p,
            max_new_tokens=self.config.max_new_tokens,
            seed=int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big"),
        )
