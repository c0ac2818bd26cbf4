"""What each kind of raw row becomes: the lines of the outputs.

The columns were checked when they were read, so a line is written from plain values; it is the
same, byte for byte, as the record's own JSON.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pydantic_core import to_json

from posttrain.curate.batch import Batch
from posttrain.curate.ledger import KINDS
from posttrain.records import content_id

Fields = Iterator[dict[str, Any]]


def prompts(batch: Batch) -> Fields:
    """The fields of `Prompt`."""
    names = ("task", "prompt", "answer", "source", "difficulty")
    for task, prompt, answer, source, difficulty in _values(batch, names):
        yield {
            "id": content_id(task, prompt),
            "text": prompt,
            "answer": answer or "",
            "task": task,
            "source": source,
            "difficulty": difficulty,
        }


def demonstrations(batch: Batch) -> Fields:
    """The fields of `Demonstration`; its reward is 1 where the response was verified, else 0: not
    known to be right."""
    names = ("task", "prompt", "response", "source", "difficulty")
    right = iter(batch.verified("response"))
    for task, prompt, response, source, difficulty in _values(batch, names):
        prompt_id = content_id(task, prompt)
        yield {
            "id": content_id(prompt_id, response or ""),
            "prompt_id": prompt_id,
            "prompt": prompt,
            "response": response or "",
            "reward": float(next(right) is True),
            "source": source,
            "difficulty": difficulty,
        }


def preferences(batch: Batch) -> Fields:
    """The fields of `Preference`."""
    names = ("task", "prompt", "chosen", "rejected", "source", "difficulty")
    for task, prompt, chosen, rejected, source, difficulty in _values(batch, names):
        prompt_id = content_id(task, prompt)
        yield {
            "id": content_id(prompt_id, chosen or "", rejected or ""),
            "prompt_id": prompt_id,
            "prompt": prompt,
            "chosen": chosen or "",
            "rejected": rejected or "",
            "source": source,
            "difficulty": difficulty,
        }


MAKERS: dict[str, Callable[[Batch], Fields]] = {
    "evaluation": prompts,
    "demonstrations": demonstrations,
    "preferences": preferences,
    "prompts": prompts,
}


def lines(batch: Batch, kind: str) -> Iterator[bytes]:
    """The output lines of a batch's rows of one kind, in order."""
    own = batch.keep(batch.kinds() == KINDS.index(kind))
    for fields in MAKERS[kind](own) if len(own) else ():
        yield to_json({name: value for name, value in fields.items() if value is not None}) + b"\n"


def _values(batch: Batch, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.values(name) for name in names), strict=True)
