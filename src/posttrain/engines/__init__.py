"""Engines: where tokens come from. To add one, write the class and a line in ENGINES.

An engine is made from a policy it shares with its caller: after the caller changes the
weights, the next call samples from the new ones. This module stays light, because options
are checked long before a model is loaded.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from posttrain.engines.sampling import Completion, Request, Sampling

__all__ = ["ENGINES", "Completion", "Engine", "Request", "Sampling", "Until"]

Until = Callable[[Sequence[int]], bool]


class Engine(Protocol):
    """Draws completions and measures likelihoods; prompts are the users' plain texts."""

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        """Completions [P][samples], the same for the same policy, prompts and `sampling`."""

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        """What each request adds; of `sampling`, all but its counts and its seed hold.

        `until` is told the places of the requests that are done, and stops the rest when it says
        so; they come back as far as they got, truncated.
        """

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        """Log-probs in nats of each response's tokens, the end-of-turn token included."""


def transformers_engine(policy: Any, *, batch: int = 512) -> Engine:
    """Decode with the policy's own model in this process, at most `batch` rows at once."""
    from posttrain.engines.transformers import TransformersEngine

    return TransformersEngine(policy, batch=batch)


ENGINES: dict[str, Callable[..., Engine]] = {"transformers": transformers_engine}
