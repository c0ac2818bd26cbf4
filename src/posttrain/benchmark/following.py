"""IFEval: which of a prompt's instructions a response follows, strictly and loosely."""

import json
from collections.abc import Sequence

from posttrain.benchmark.instructions import follows, loosened
from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Sample
from posttrain.samples import generated


def instructions(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """Generate, and check every instruction by rule. The item's answer is JSON: a list of pairs of
    an instruction's type and its parameters.

    `correct` is strict at the level of prompts: all are followed, and an instruction that no rule
    can tell counts as not followed, so that the score is a lower bound.
    """
    rows = generated(engine, suite, [item.prompt for item in items], sampling, lambda *_: False)
    return [checked(row) for row in rows]


def checked(row: Sample) -> Sample:
    """A row with what its response follows.

    Measures: `strict` and `loose` count the instructions followed of the `told` ones, those that
    a rule can tell; `untold` the others; `prompt_loose`, and `told_prompt` where all are told.
    """
    asked = json.loads(row.answer)
    strict = [follows(kind, how, row.response) for kind, how in asked]
    variants = [*loosened(row.response)]
    loose = [any(follows(kind, how, each) for each in variants) for kind, how in asked]
    told = [each is not None for each in strict]
    measures = {
        "told": sum(told),
        "untold": len(told) - sum(told),
        "strict": sum(map(bool, strict)),
        "loose": sum(followed for followed, known in zip(loose, told, strict=True) if known),
        "told_prompt": all(told),
        "prompt_strict": all(map(bool, strict)),
        "prompt_loose": all(told) and all(loose),
    }
    return row.model_copy(
        update={
            "correct": float(measures["prompt_strict"]),
            "measures": {name: float(value) for name, value in measures.items()},
        }
    )
