"""One score a response from a judge that only compares: a tournament within each prompt.

No reference response exists for a prompt that nobody has seen, and whoever asks for scores
compares them within a prompt; so each response meets others of its prompt. With s the
Bradley-Terry strengths, in nats, a full tournament gives s_i - mean(s): gaps are those of s.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from posttrain.reward_model.protocol import PairwiseJudge

RIVALS = 8
"""Rivals of a response at most: 8 N comparisons of N responses rather than N^2 (assumed)."""

NOTHING = ""
"""Whom a response meets that has no rival: an empty one."""


class Tournament:
    """A pairwise judge that scores too."""

    def __init__(self, judge: PairwiseJudge) -> None:
        self.judge = judge

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        """By how much the first response beats the second, as the judge says."""
        return self.judge.compare(prompts, firsts, seconds)

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """Scores within each prompt, of the responses in this call; every meeting in both orders.

        A meeting without an answer does not count; NaN where no meeting has one.
        """
        entrants: dict[str, set[str]] = {}
        for prompt, response in zip(prompts, responses, strict=True):
            entrants.setdefault(prompt, set()).add(response)
        meetings = [
            (prompt, *pair) for prompt, group in entrants.items() for pair in fixtures(group)
        ]
        gaps = self._gaps(meetings)
        won: dict[tuple[str, str], list[float]] = {}
        for (prompt, one, other), gap in zip(meetings, gaps, strict=True):
            won.setdefault((prompt, one), []).append(gap)
            won.setdefault((prompt, other), []).append(-gap)
        return [strength(won[key]) for key in zip(prompts, responses, strict=True)]

    def _gaps(self, meetings: Sequence[tuple[str, str, str]]) -> list[float]:
        """The gap of each meeting, the mean of its two orders."""
        prompts, ones, others = (list(column) for column in zip(*meetings, strict=True))
        # One call, so that a judge that batches has all of it.
        both = self.compare(prompts * 2, ones + others, others + ones)
        size = len(meetings)
        return [(a - b) / 2 for a, b in zip(both[:size], both[size:], strict=True)]


def fixtures(group: set[str]) -> list[tuple[str, str]]:
    """Who meets whom, each pair once: all, or in a circle those at most RIVALS / 2 places on."""
    circle = sorted(group)
    n = len(circle)
    if n == 1:
        return [(circle[0], NOTHING)]
    reach = min(n - 1, RIVALS // 2)
    pairs = ((i, (i + step) % n) for i in range(n) for step in range(1, reach + 1))
    return [(circle[i], circle[j]) for i, j in sorted({(min(p), max(p)) for p in pairs})]


def strength(gaps: Sequence[float]) -> float:
    """The mean over oneself and one's rivals of the gaps that are known: sum / (rivals + 1)."""
    known = [gap for gap in gaps if math.isfinite(gap)]
    return fmean([0.0, *known]) if known else math.nan
