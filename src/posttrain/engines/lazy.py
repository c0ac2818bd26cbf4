"""An engine that is started when somebody first asks it.

Where another process draws all completions, this one would hold a copy of the weights for nothing.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from posttrain.engines import Completion, Engine, Request, Sampling, Until


class LazyEngine:
    """The engine that `start` makes, made once."""

    def __init__(self, start: Callable[[], Engine]) -> None:
        self._start = start

    @cached_property
    def _engine(self) -> Engine:
        return self._start()

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        """As `Engine.generate`."""
        return self._engine.generate(prompts, sampling)

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        """As `Engine.resume`."""
        return self._engine.resume(requests, sampling, until)

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        """As `Engine.logps`."""
        return self._engine.logps(prompts, responses)
