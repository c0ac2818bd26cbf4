"""Agreement between raters who sort the same items into categories, beyond what chance gives.

Raters here are people and judges; a category is the better response (1 or 2) or a tie (0).
"""

from collections import Counter
from collections.abc import Hashable, Sequence


def cohen_kappa(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> float:
    """Cohen's kappa (1960) of two raters: (p_o - p_e) / (1 - p_e).

    p_o is the share of items on which they agree, p_e the share if each kept only its own
    frequencies. 0 where p_e is 1: both always say the same. Raises ValueError on no items.
    """
    n = len(ours)
    if not n or n != len(theirs):
        raise ValueError(f"{n} ratings cannot be paired with {len(theirs)}")
    observed = sum(a == b for a, b in zip(ours, theirs, strict=True)) / n
    frequency, other = Counter(ours), Counter(theirs)
    expected = sum(frequency[category] * other[category] for category in frequency) / n**2
    return (observed - expected) / (1 - expected) if expected < 1 else 0.0


def fleiss_kappa(votes: Sequence[Sequence[Hashable]]) -> float:
    """Fleiss' kappa (1971) of items that each have the same number of raters, at least two.

    The mean share of agreeing pairs of raters of an item, against that of the pooled frequencies.
    Raises ValueError on no items or unequal numbers of raters.
    """
    raters = {len(row) for row in votes}
    if len(raters) != 1 or min(raters) < 2:
        raise ValueError("every item needs the same number of raters, at least two")
    [r] = raters
    counts = [Counter(row) for row in votes]
    agreed = [sum(c * (c - 1) for c in row.values()) / (r * (r - 1)) for row in counts]
    pooled = sum(counts, Counter())
    expected = sum((c / (r * len(votes))) ** 2 for c in pooled.values())
    observed = sum(agreed) / len(votes)
    return (observed - expected) / (1 - expected) if expected < 1 else 0.0


def majority(votes: Sequence[int]) -> int | None:
    """The category that more than half of the raters chose; None without one."""
    category, count = Counter(votes).most_common(1)[0]
    return category if 2 * count > len(votes) else None
