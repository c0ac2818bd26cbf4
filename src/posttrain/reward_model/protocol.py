"""What a judge is to whoever asks it; nothing here imports torch."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Judge(Protocol):
    """What every judge does, of whatever kind."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """One score for each prompt and response; NaN where there is none."""


@runtime_checkable
class PairwiseJudge(Protocol):
    """A judge that reads two responses at once, so that their order may sway it."""

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        """By how much the first response beats the second; 0 is a tie, NaN no answer."""


AnyJudge = Judge | PairwiseJudge
