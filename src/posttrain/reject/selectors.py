"""Selectors: which of a prompt's surviving completions become demonstrations.

A selector gets the candidates of one prompt (right where the verifier is on, no two alike, in
the order they were drawn) and returns the places of those it keeps, each once. One that needs
a judge raises ConfigError when the scores are missing. To add one, write the function and a
line in SELECTORS.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from posttrain.errors import ConfigError, Fault

Count = Annotated[int, Field(ge=1)]


class Candidate(NamedTuple):
    """A completion; `correct` None without a verifier, `judge` None without a judge."""

    text: str
    correct: bool | None
    judge: float | None


Selector = Callable[[Sequence[Candidate]], list[int]]


def all_correct(candidates: Sequence[Candidate], /, *, most: int = 0) -> list[int]:
    """Keep every candidate, or the first `most` of them (RFT, arXiv:2308.01825)."""
    return list(range(len(candidates)))[: most or None]


def best(candidates: Sequence[Candidate], /) -> list[int]:
    """Keep the one the judge scores highest (RAFT, arXiv:2304.06767)."""
    return top_k(candidates, k=1)


def top_k(candidates: Sequence[Candidate], /, *, k: Count = 2) -> list[int]:
    """Keep the `k` that the judge scores highest, in the order they were drawn."""
    scores = judged("top_k", candidates)
    ranked = sorted(range(len(candidates)), key=lambda i: (-scores[i], i))
    return sorted(ranked[:k])


def diverse(candidates: Sequence[Candidate], /, *, k: Count = 2) -> list[int]:
    """Keep `k` that differ in their words: greedily the one furthest from those already kept.

    Distance is 1 - |A and B| / |A or B| of the sets of words; the first is the judge's
    favourite, or without a judge the first drawn (max-min dispersion, Gonzalez 1985).
    """
    if not candidates:
        return []
    words = [frozenset(candidate.text.split()) for candidate in candidates]
    first = max(range(len(candidates)), key=lambda i: (candidates[i].judge or 0.0, -i))
    kept = [first]
    while len(kept) < min(k, len(candidates)):
        rest = [i for i in range(len(candidates)) if i not in kept]
        kept.append(max(rest, key=lambda i: (min(distance(words[i], words[j]) for j in kept), -i)))
    return sorted(kept)


def distance(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's distance of two sets, in [0, 1]; two empty sets are the same."""
    either = len(one | other)
    return 1 - len(one & other) / either if either else 0.0


def judged(name: str, candidates: Sequence[Candidate]) -> list[float]:
    """The judge's scores; ConfigError when a candidate has none."""
    scores = [candidate.judge for candidate in candidates if candidate.judge is not None]
    if len(scores) < len(candidates):
        raise ConfigError(
            Fault(
                f"selector `{name}` needs a judge",
                "reject.selector",
                "it ranks by the judge's score",
                "give --judge, or select `all_correct` or `diverse`",
            )
        )
    return scores


SELECTORS: dict[str, Callable[..., list[int]]] = {
    "all_correct": all_correct,
    "best": best,
    "top_k": top_k,
    "diverse": diverse,
}
