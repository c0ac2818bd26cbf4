"""Environments: what answers the policy in the middle of a response.

A piece of the response ends with the end of the turn or with a token the environment listens for;
then `observe` may add text of its own, which is masked from the loss, and the policy goes on. To
add one, write the class and a line in ENVIRONMENTS.
"""

import re
from collections.abc import Callable
from functools import lru_cache
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


# Nine digits a number: no result is longer than eighteen, whatever the policy writes.
_CALL = re.compile(r" *(-?\d{1,9}) *([-+*/]) *(-?\d{1,9}) *=( ?)", re.ASCII)


class Calculator:
    """A tool that finishes equations: after `12 * 7 =` on a line of its own it writes ` 84`.

    The rest of the line is the tool's too, its end included, so that the policy cannot add digits.
    What is no call of two whole numbers, or has no whole result, gets no answer, and the policy
    goes on by itself.
    """

    def stops(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        return equals_signs(tokenizer)

    def observe(self, prompt: Prompt, text: str) -> str | None:
        line = text[text.rfind("\n") + 1 :]
        call = _CALL.fullmatch(line)
        result = computed(int(call[1]), call[2], int(call[3])) if call else None
        if call is None or result is None:
            return None
        return f"{'' if call[4] else ' '}{result}\n"


def computed(left: int, operator: str, right: int) -> int | None:
    """The exact result; None where it is not a whole number."""
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left // right if right and left % right == 0 else None


@lru_cache(maxsize=4)
def equals_signs(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The tokens that are an equals sign, with or without spaces."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return tuple(token for token, text in enumerate(texts) if text.strip(" ") == "=")


ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "single_turn": SingleTurn,
    "calculator": Calculator,
}
