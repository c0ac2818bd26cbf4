"""What an operator is, and what the two kinds of operators are asked.

A local operator is called with a batch and answers for each row None or the reason to drop it:
`__call__(batch) -> reasons`. The row alone decides, so shards can be worked on in any order.

An operator with memory compares rows with each other. `sketch(batch) -> arrays` says in little
room what it must remember of each row; when every shard is done, `decide(sketches) -> reasons`
goes through them in the order of the input, so its answer depends on no shard or process.

Either kind may have `learn(evaluation)`: before anything else it is called with each batch of
evaluation rows that the local operators before it keep.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeIs

from posttrain.curate.batch import Batch, Mask
from posttrain.records import RawRow

Reasons = Sequence[str | None]
Arrays = Mapping[str, NDArray[Any]]


class Sketch:
    """What an operator wrote of the rows of a shard; `alive` masks those still in the run."""

    def __init__(self, arrays: Callable[[str], NDArray[Any]], alive: Mask) -> None:
        self._arrays = arrays
        self.alive = alive

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays(name)

    @classmethod
    def of(cls, rows: int, arrays: Arrays) -> "Sketch":
        """A sketch in memory, all of whose rows are in the run."""
        return cls(arrays.__getitem__, np.ones(rows, dtype=bool))


class Local(Protocol):
    """Decides each row by itself."""

    def __call__(self, batch: Batch, /) -> Reasons: ...


@runtime_checkable
class Remembering(Protocol):
    """Decides rows by the rows before them."""

    def sketch(self, batch: Batch, /) -> Arrays: ...

    def decide(self, sketches: Sequence[Sketch], /) -> Iterator[Reasons]: ...


@runtime_checkable
class Learning(Protocol):
    """Looks at the evaluation rows first."""

    def learn(self, evaluation: Batch, /) -> None: ...


Operator = Local | Remembering


def remembers(operator: Operator) -> TypeIs[Remembering]:
    """Whether the operator compares rows with each other."""
    return isinstance(operator, Remembering)


def by_row(batch: Batch, reason: Callable[[RawRow], str | None]) -> Reasons:
    """The answers of a function of one row."""
    return [reason(row) for row in batch.rows()]


def reasons(batch: Batch, *checks: tuple[str, Any]) -> Reasons:
    """The first reason whose mask holds, row by row."""
    found: list[str | None] = [None] * len(batch)
    for reason, mask in reversed(checks):
        for at in np.flatnonzero(np.asarray(mask, dtype=bool)):
            found[at] = reason
    return found


def learn(operators: Iterable[tuple[str, Operator]], evaluation: Batch) -> None:
    """Show the evaluation rows to those operators that learn, after the local ones before them."""
    for _, operator in operators:
        if isinstance(operator, Learning):
            operator.learn(evaluation)
        if not remembers(operator) and len(evaluation):
            evaluation = evaluation.keep(stays(operator(evaluation)))


def stays(answers: Reasons) -> Mask:
    """Which rows no reason drops."""
    return np.array([answer is None for answer in answers], dtype=bool)


def judge(operators: Sequence[tuple[str, Operator]], rows: Sequence[RawRow]) -> list[str | None]:
    """What a chain says of rows in memory: for each None, or the first reason to drop it."""
    batch, found = Batch.of(rows), dict[int, str]()
    learn(operators, batch.keep(batch.kinds() == 0))
    for _, operator in operators:
        if remembers(operator):
            (answers,) = operator.decide([Sketch.of(len(batch), operator.sketch(batch))])
        else:
            answers = operator(batch)
        found |= {int(at): why for at, why in zip(batch.numbers, answers, strict=True) if why}
        batch = batch.keep(stays(answers))
    return [found.get(at) for at in range(len(rows))]
