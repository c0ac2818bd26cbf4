"""Engines to try controllers on: one on a simulated clock, where a token takes a tick, and the real
one, whose responses end apart."""

from collections.abc import Sequence
from typing import Any

from posttrain.engines import Completion, Request, Sampling, Until
from posttrain.engines.transformers import TransformersEngine
from posttrain.records import Prompt
from posttrain.rl.rollout import Group

WORD = 20


class SimulatedEngine:
    """Writes a token a tick; a response is as long as its prompt's text says, in tokens."""

    def __init__(self, end: int) -> None:
        self.end, self.ticks, self.weights = end, 0, 0

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        needs = [int(r.prompt.split("/")[0]) - len(r.written) for r in requests]
        done: list[int] = []
        ticks = 0
        while len(done) < len(requests) and not (until and until(done)):
            ticks += 1
            done += [at for at, need in enumerate(needs) if need == ticks]
        self.ticks += ticks
        found = []
        for need in needs:
            own = min(need, ticks)
            tokens = [WORD] * own if own < need else [WORD] * (own - 1) + [self.end]
            found.append(Completion("", tuple(tokens), (-float(self.weights),) * own, own < need))
        return found

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        room = sampling.max_new_tokens
        return [
            self.resume([Request(prompt, seed, room) for seed in range(sampling.samples)], sampling)
            for prompt in prompts
        ]

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        return [[0.0] for _ in responses]


def prompts_of(lengths: Sequence[int]) -> list[Prompt]:
    """Prompts whose responses are so long."""
    return [
        Prompt(id=str(i), text=f"{n}/{i}", answer="1", task="arithmetic", source="test")
        for i, n in enumerate(lengths)
    ]


def ids(groups: Sequence[Group]) -> list[str]:
    return [group[0].prompt.id for group in groups]


class HastyEngine(TransformersEngine):
    """An eighth of the tokens end a response, so that rows finish apart."""

    def __init__(self, policy: Any, *, batch: int = 512) -> None:
        super().__init__(policy, batch=batch)
        self.stop_ids = frozenset(range(0, len(policy.tokenizer), 8))
