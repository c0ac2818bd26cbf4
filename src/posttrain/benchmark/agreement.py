"""Two engines on one policy: do they write the same, and if not, why."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Completion, Engine, Sampling


class Agreement(NamedTuple):
    """`equal`: share of greedy answers that are the same; `near_ties`: share of the others that
    part where the two tokens are as likely, within the tolerance. `gap`: mean absolute difference
    of log-probs in nats a token on the first engine's answers, `largest_gap` the largest.
    `why` is empty where the engines agree.
    """

    items: int
    equal: float
    near_ties: float
    gap: float
    largest_gap: float
    tolerance: float
    why: str

    def numbers(self) -> dict[str, float]:
        """For the report: all but the reason, and whether they agree."""
        found = {name: float(of) for name, of in self._asdict().items() if name != "why"}
        return found | {"agree": float(not self.why)}


def compared(
    first: Engine,
    second: Engine,
    items: Mapping[str, Sequence[Item]],
    draws: Mapping[str, Sampling],
    n: int,
    tolerance: float,
) -> dict[str, Agreement]:
    """The agreement of two engines on `n` items of each suite."""
    return {
        name: agreement(first, second, subset(found, n), draws[name], tolerance)
        for name, found in items.items()
    }


def agreement(
    first: Engine, second: Engine, items: Sequence[Item], sampling: Sampling, tolerance: float
) -> Agreement:
    """Greedy answers of both engines, and both engines' log-probs of the first one's.

    They agree when the mean gap is within `tolerance` and answers part at near ties alone.
    """
    prompts = [item.prompt.text for item in items]
    greedy = sampling._replace(samples=1, temperature=0.0)
    ours = [group[0] for group in first.generate(prompts, greedy)]
    theirs = [group[0] for group in second.generate(prompts, greedy)]
    texts = [each.text for each in ours]
    pairs = zip(first.logps(prompts, texts), second.logps(prompts, texts), strict=True)
    # Where the engines split a text in other tokens there is no gap to speak of.
    gaps = [
        np.abs(np.array(a) - np.array(b)) if len(a) == len(b) else np.array([np.inf])
        for a, b in pairs
    ]
    gap_T = np.concatenate(gaps)
    parted = [leads(a, b) for a, b in zip(ours, theirs, strict=True) if a.tokens != b.tokens]
    ties = sum(lead <= 2 * tolerance for lead in parted)
    gap, largest = float(gap_T.mean()), float(gap_T.max())
    reasons = []
    if not gap <= tolerance:
        reasons.append(
            f"log-probs differ by {gap:.3g} nats a token, {tolerance:g} are allowed:"
            " other weights, precision or chat template"
        )
    if len(parted) > ties:
        reasons.append(
            f"{len(parted) - ties} of {len(items)} greedy answers part where one token leads by"
            f" more than {2 * tolerance:g} nats"
        )
    return Agreement(
        items=len(items),
        equal=1 - len(parted) / len(items),
        near_ties=ties / len(parted) if parted else 1.0,
        gap=gap,
        largest_gap=largest,
        tolerance=tolerance,
        why="; ".join(reasons),
    )


def leads(ours: Completion, theirs: Completion) -> float:
    """Nats by which the two answers' tokens differ in likelihood where they part."""
    both = zip(ours.tokens, theirs.tokens, strict=False)
    at = next((i for i, (a, b) in enumerate(both) if a != b), None)
    return float("inf") if at is None else abs(ours.logps[at] - theirs.logps[at])


def subset(items: Sequence[Item], n: int) -> list[Item]:
    """`n` items by a hash of their ids: the same ones for every pair of engines."""
    return sorted(items, key=lambda item: sha256(item.prompt.id.encode()).digest())[:n]
