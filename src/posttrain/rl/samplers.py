"""Prompt samplers: the pool of prompts and what is known about them in, the next prompts out.

A sampler keeps no state of its own; what must survive a kill is in the `Pool`. To add one,
write the function and a line in PROMPT_SAMPLERS.
"""

from collections.abc import Callable

from posttrain.records import Prompt
from posttrain.rl.pool import Pool
from posttrain.rl.rollout import PromptStats


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
