"""Prompts that are neither too hard nor too easy."""

from posttrain.records import Prompt
from posttrain.rl.pool import Pool
from posttrain.rl.rollout import PromptStats


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
