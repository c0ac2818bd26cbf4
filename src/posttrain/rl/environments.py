"""Environments: what answers the policy in the middle of a response.

A piece of the response ends with the end of the turn or with a token the environment listens for;
then `observe` may add text of its own, which is masked from the loss, and the policy goes on. To
add one, write the class and a line in ENVIRONMENTS.
"""

from collections.abc import Callable
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from posttrain.records import Prompt


class Environment(Protocol):
    """Stateless: all it knows is the prompt and the text so far."""

    def stops(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        """The ids of the tokens it listens for."""

    def observe(self, prompt: Prompt, text: str) -> str | None:
        """What it adds to the text; None: nothing, the response is over or goes on as it was."""


class SingleTurn:
    """Nobody answers: a response is one piece."""

    def stops(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        return ()

    def observe(self, prompt: Prompt, text: str) -> str | None:
        return None


ENVIRONMENTS: dict[str, Callable[..., Environment]] = {"single_turn": SingleTurn}
