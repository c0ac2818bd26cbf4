"""Processes that update one policy together (data parallel, as `torchrun` starts them).

Each holds the whole policy and knows every lesson; it runs its share of the rows, and gradients
and metrics are added up over all. A loss divides by counts of the whole batch, so that the sum is
what one process would have found. Alone, nothing here does anything.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, distributed

from posttrain.engines.likelihood import Row
from posttrain.interruption import ask, asked, grace_seconds

Fact = TypeVar("Fact")


class Place(NamedTuple):
    """Which process of how many."""

    rank: int
    size: int


def place() -> Place:
    """This process's."""
    if not distributed.is_initialized():
        return Place(0, 1)
    return Place(distributed.get_rank(), distributed.get_world_size())


def share(rows: Sequence[Row], place: Place) -> list[Row]:
    """The process's rows: about as many response tokens as the others', prompts kept together."""
    if place.size == 1:
        return list(rows)
    ordered = sorted(rows, key=lambda row: (row.prompt, row.response, row.place))
    costs = [1 + len(row.response) for row in ordered]
    total, before, mine = sum(costs), 0, []
    for row, cost in zip(ordered, costs, strict=True):
        if (2 * before + cost) * place.size // (2 * total) == place.rank:
            mine.append(row)
        before += cost
    return mine


def add_gradients(weights: Iterable[Tensor]) -> None:
    """Replace each gradient by its sum over the processes."""
    if place().size == 1:
        return
    pending = []
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        pending.append(distributed.all_reduce(weight.grad, async_op=True))
    for each in pending:
        each.wait()


def first_says(fact: Fact) -> Fact:
    """What process 0 says; the others wait for it."""
    if place().size == 1:
        return fact
    said = [fact]
    distributed.broadcast_object_list(said, src=0)
    return said[0]


def hear() -> None:
    """Ask here what was asked of any process: one machine that goes takes the crew with it."""
    if place().size > 1:
        for error in filter(None, exchange(asked())):
            ask(error, grace_seconds())


def exchange(fact: Fact) -> list[Fact]:
    """What each process says, in their order, the same list in all of them."""
    size = place().size
    if size == 1:
        return [fact]
    found: list[Fact | None] = [None] * size
    distributed.all_gather_object(found, fact)
    return [each for each in found if each is not None]
