"""A batch: some raw rows in their order, as columns, with what operators derive from them.

Every operator of `posttrain.curate.filters` takes a batch. What several of them need (the words
of a text, its sketch, whether a response verifies) is made once and goes along when rows leave.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from posttrain.curate.likeness import Words, normal_forms, sketched, words_of
from posttrain.records import RawRow
from posttrain.rewards.verifiers import verify

_TYPES = {"difficulty": pa.int64(), "agreement": pa.float64()}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in RawRow.model_fields])
TEXTS = ("prompt", "response", "chosen", "rejected")

Mask = NDArray[np.bool_]
Made = TypeVar("Made", "list[Any]", Words, NDArray[Any])


class Batch:
    """Rows as Arrow columns; `numbers` are their places in the shard."""

    def __init__(self, table: pa.Table, numbers: NDArray[np.int64] | None = None) -> None:
        self.table = table
        self.numbers = np.arange(len(table)) if numbers is None else numbers
        self._made: dict[str, Any] = {}

    @classmethod
    def of(cls, rows: Sequence[RawRow]) -> Self:
        """The batch of some rows."""
        return cls(pa.Table.from_pylist([row.model_dump() for row in rows], schema=SCHEMA))

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str) -> pa.Array:
        """A column of `RawRow`, without chunks."""
        return self.table.column(name).combine_chunks()

    def values(self, name: str) -> list[Any]:
        """A column as Python values."""
        return self.made(f"values {name}", lambda: self.column(name).to_pylist())

    def rows(self) -> Iterator[RawRow]:
        """The rows one by one, for what looks at one row at a time."""
        columns = [self.values(name) for name in SCHEMA.names]
        for row in zip(*columns, strict=True):
            yield RawRow.model_construct(**dict(zip(SCHEMA.names, row, strict=True)))

    def present(self, name: str) -> Mask:
        """Which rows have a value in a column."""
        return np.asarray(self.column(name).is_valid())

    def kinds(self) -> NDArray[np.int8]:
        """The place in KINDS of each row's kind."""
        return self.made("kinds", self._kinds)

    def _kinds(self) -> NDArray[np.int8]:
        evaluation = np.asarray(pc.equal(self.column("split"), "eval"))
        pairs = self.present("chosen") | self.present("rejected")
        found = np.where(pairs, 2, np.where(self.present("response"), 1, 3))
        return np.where(evaluation, 0, found).astype(np.int8)

    def words(self, name: str) -> Words:
        """The words of a text column; those of an absent text are none."""
        return self.made(f"words {name}", lambda: words_of(self.values(name)))

    def normal_forms(self, name: str) -> NDArray[np.uint64]:
        """[rows, 2]: 128 bits of the words of a text column in order."""
        return self.made(f"normal forms {name}", lambda: normal_forms(self.words(name)))

    def signatures(self, name: str) -> NDArray[np.int32]:
        """[rows, PERMUTATIONS]: the MinHash signatures of a text column."""
        return self.made(f"signatures {name}", lambda: sketched(self.words(name)))

    def verified(self, name: str) -> list[bool | None]:
        """Whether each response of a column is right; None where it or the answer is absent."""
        return self.made(f"verified {name}", lambda: list(self._verify(name)))

    def _verify(self, name: str) -> Iterator[bool | None]:
        columns = [self.values(each) for each in ("task", "prompt", "answer", name)]
        for task, prompt, answer, response in zip(*columns, strict=True):
            known = answer is not None and response is not None
            yield verify(task, prompt, answer, response) if known else None

    def made(self, key: str, make: Callable[[], Made]) -> Made:
        """What was derived under the key, made once."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    def keep(self, mask: Mask) -> "Batch":
        """The rows where the mask holds, with what was derived of them."""
        if mask.all():
            return self
        kept = Batch(self.table.filter(pa.array(mask)), self.numbers[mask])
        places = np.flatnonzero(mask).tolist()
        for key, value in self._made.items():
            if isinstance(value, list):
                kept._made[key] = [value[at] for at in places]
            else:
                kept._made[key] = value.keep(mask) if isinstance(value, Words) else value[mask]
        return kept
