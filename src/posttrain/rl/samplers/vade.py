"""A Beta posterior of each prompt's success, and Thompson sampling of what is worth a group."""

from statistics import fmean
from typing import Annotated

from pydantic import Field

from posttrain.records import Prompt
from posttrain.rl.pool import Pool, Seen

Share = Annotated[float, Field(ge=0, le=1)]
Counts = dict[str, list[float]]


def vade(
    pool: Pool,
    count: int,
    /,
    *,
    local_decay: Share = 0.9,
    global_decay: Share = 0.99,
    threshold: float = 0.5,
) -> list[Prompt]:
    """Thompson sampling of the prompts with the greatest p(1-p)^2 (VADE, arXiv:2511.18902).

    The chance p is drawn from each prompt's Beta(right + 1, wrong + 1). With each draw that saw
    groups all counts shrink by `global_decay` and those of the prompts seen by `local_decay` too,
    before the new rollouts are added; both factors are assumed. Right is a reward of at least
    `threshold`. With more prompts wanted than there are, p is drawn anew.
    """
    counts: Counts = pool.memory.setdefault("vade", {})
    if pool.recent:
        decay(counts, global_decay)
    for seen in pool.recent:
        update(counts, seen, local_decay, threshold)
    rng = pool.rng("vade")
    taken: list[Prompt] = []
    values: list[float] = []
    while len(taken) < count:
        drawn = [
            value(rng.betavariate(right + 1, wrong + 1))
            for right, wrong in (counts.get(prompt.id, (0.0, 0.0)) for prompt in pool.prompts)
        ]
        best = sorted(range(len(drawn)), key=drawn.__getitem__, reverse=True)
        best = best[: count - len(taken)]
        taken += [pool.prompts[i] for i in best]
        values += [drawn[i] for i in best]
    pool.memory["metrics"] = described(counts, taken, values, len(pool.prompts))
    return taken


def value(chance: float) -> float:
    """What a prompt solved with this chance teaches; most at 1/3."""
    return chance * (1 - chance) ** 2


def decay(counts: Counts, factor: float) -> None:
    """Forget a share of every prompt's rollouts."""
    for pair in counts.values():
        pair[:] = [factor * number for number in pair]


def update(counts: Counts, seen: Seen, factor: float, threshold: float) -> None:
    """Forget a share of the prompt's rollouts and add a group's."""
    right, wrong = counts.get(seen.prompt_id, (0.0, 0.0))
    hits = sum(reward >= threshold for reward in seen.rewards)
    misses = len(seen.rewards) - hits
    counts[seen.prompt_id] = [factor * right + hits, factor * wrong + misses]


def described(
    counts: Counts, taken: list[Prompt], values: list[float], prompts: int
) -> dict[str, float]:
    """Of the prompts taken: mean chance by the posterior, mean value drawn, share never seen; and
    the share of all prompts that were seen."""
    pairs = [counts.get(prompt.id, (0.0, 0.0)) for prompt in taken]
    return {
        "vade/posterior_mean": fmean((a + 1) / (a + b + 2) for a, b in pairs) if pairs else 0.0,
        "vade/value": fmean(values) if values else 0.0,
        "vade/unseen": fmean(p.id not in counts for p in taken) if taken else 0.0,
        "vade/seen": len(counts) / prompts,
    }
