"""Filters of labels: how many people stand behind them, and whether they contradict each other."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.curate.batch import TEXTS, Batch, Mask
from posttrain.curate.filters.duplicates import by_key, split
from posttrain.curate.likeness import Hashes, mixed
from posttrain.curate.operators import Arrays, Reasons, Sketch, reasons
from posttrain.records import content_id


@dataclass
class Agreement:
    """Drop rows on whose label less than `at_least` of the annotators agreed.

    A row that says nothing of its annotators stays. PandaLM has three (arXiv:2306.05087).
    """

    _: KW_ONLY
    at_least: Annotated[float, Field(ge=0, le=1)] = 1.0

    def __call__(self, batch: Batch, /) -> Reasons:
        # What is not known is NaN, which is below nothing.
        low = batch.column("agreement").to_numpy(zero_copy_only=False) < self.at_least
        return reasons(batch, ("too few annotators agree", low))


@dataclass
class Contradiction:
    """Drop rows that contradict each other, all of them: the audit of label noise.

    Two pairs of the same responses to one prompt, the other way round; or one prompt of a task
    with two answers. One of the two is wrong, and nothing in the rows says which.
    """

    def sketch(self, batch: Batch, /) -> Arrays:
        """What a row is about, and its side; what it is about is 0 where it takes none."""
        names = ("task", "prompt", "answer", "chosen", "rejected")
        forms = {name: batch.normal_forms(name)[:, 0] for name in names}
        there = {name: batch.present(name) for name in names}
        pair = mixed(forms["prompt"] ^ mixed(forms["chosen"] + forms["rejected"]))
        question = mixed(forms["prompt"] ^ mixed(forms["task"]))
        return {
            "pair": np.where(there["chosen"] & there["rejected"], pair, np.uint64(0)),
            "order": forms["chosen"],
            "question": np.where(there["answer"], question, np.uint64(0)),
            "answer": forms["answer"],
        }

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        masks = [_apart(sketches, *names) for names in (("pair", "order"), ("question", "answer"))]
        turned = split("another pair says the opposite", masks[0], sketches)
        other = split("another row has another answer", masks[1], sketches)
        for one, two in zip(turned, other, strict=True):
            yield [first or second for first, second in zip(one, two, strict=True)]


def _apart(sketches: Sequence[Sketch], about: str, side: str) -> Mask:
    """Which rows are about something that has rows of more than one side."""
    alive = np.concatenate([sketch.alive for sketch in sketches])
    sides: Hashes = np.concatenate([np.asarray(sketch[side]) for sketch in sketches])
    found = np.zeros(len(alive), dtype=bool)
    for keys, places in by_key([np.asarray(sketch[about]) for sketch in sketches], alive):
        if not len(keys):
            continue
        firsts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        own = sides[places]
        apart = np.minimum.reduceat(own, firsts) != np.maximum.reduceat(own, firsts)
        found[places] = np.repeat(apart, np.diff(firsts, append=len(keys))) & (keys != 0)
    return found


@dataclass
class RepeatedId:
    """Drop rows whose id an earlier row with other texts has: nothing could tell them apart.

    A row that is there again, id and all, is left to `exact_duplicate`.
    """

    def sketch(self, batch: Batch, /) -> Arrays:
        """The id and the normal form of the texts, as numbers."""
        texts = np.zeros(len(batch), dtype=np.uint64)
        for name in (*TEXTS, "answer"):
            texts = mixed(texts * np.uint64(0x9E3779B97F4A7C15) + batch.normal_forms(name)[:, 0])
        digests = [content_id(each)[:16] for each in batch.values("id")]
        return {"id": np.array([int(each, 16) for each in digests], np.uint64), "texts": texts}

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]:
        alive = np.concatenate([sketch.alive for sketch in sketches])
        texts = np.concatenate([np.asarray(sketch["texts"]) for sketch in sketches])
        found = np.zeros(len(alive), dtype=bool)
        for keys, places in by_key([np.asarray(sketch["id"]) for sketch in sketches], alive):
            firsts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
            first = np.repeat(places[firsts], np.diff(firsts, append=len(keys)))
            found[places] = texts[places] != texts[first]
        yield from split("another row has its id", found, sketches)
