"""Samples of a policy: drawn and verified chunk by chunk, so that a kill costs one chunk.

A chunk's random numbers depend on the seed, the suite and the chunk's place alone; what is
read back after a kill is what would have been drawn.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from posttrain.artifacts import read_rows, write_rows
from posttrain.durable import rename, synced
from posttrain.engines import Engine, Sampling
from posttrain.records import Prompt, Sample, content_id
from posttrain.rewards.verifiers import Claim, prediction, verify, verify_all

Item = TypeVar("Item")


def in_chunks(
    items: Sequence[Item],
    size: int,
    scratch: Path,
    name: str,
    score: Callable[[Sequence[Item], int], list[Sample]],
) -> Iterator[list[Sample]]:
    """Yield the samples of each chunk of items, from `scratch` where it holds them.

    `score` takes a chunk and its place. A chunk's file appears whole or not at all.
    """
    for start in range(0, len(items), size):
        file = f"{name}-{start:06}.jsonl"
        if not (scratch / file).is_file():
            rows = score(items[start : start + size], start)
            write_rows(scratch, rows, f"{file}.partial")
            synced(scratch / f"{file}.partial")
            rename(scratch / f"{file}.partial", scratch / file)
        yield list(read_rows(scratch, Sample, file))


def seed_of(seed: int, *place: object) -> int:
    """A seed for one place of a run, in 0..2^31-1."""
    return int(content_id(str(seed), *map(str, place)), 16) % 2**31


def generated(
    engine: Engine,
    suite: str,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    correct: Callable[[Prompt, str], bool] | None = None,
) -> list[Sample]:
    """Draw completions and judge them, by the verifier of each prompt's task unless told other."""
    completions = engine.generate([prompt.text for prompt in prompts], sampling)
    pairs = [(p, c.text) for p, group in zip(prompts, completions, strict=True) for c in group]
    if correct:
        right = iter([correct(prompt, response) for prompt, response in pairs])
    else:
        right = iter(verify_all([Claim(p.task, p.text, p.answer, text) for p, text in pairs]))
    return [
        Sample(
            suite=suite,
            item_id=prompt.id,
            index=index,
            prompt=prompt.text,
            answer=prompt.answer,
            response=completion.text,
            correct=float(next(right)),
            tokens=len(completion.tokens),
            truncated=completion.truncated,
            difficulty=prompt.difficulty,
            prediction=prediction(prompt.task, completion.text),
            logp=round(math.fsum(completion.logps), 4),
        )
        for prompt, group in zip(prompts, completions, strict=True)
        for index, completion in enumerate(group)
    ]


def by_verifier(prompt: Prompt, response: str) -> bool:
    """Whether the response is right, by the verifier that the prompt's task names."""
    return verify(prompt.task, prompt.text, prompt.answer, response)
