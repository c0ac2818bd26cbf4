"""Every prompt once an epoch."""

from posttrain.records import Prompt
from posttrain.rl.pool import Pool


def uniform(pool: Pool, count: int, /) -> list[Prompt]:
    """Every prompt once an epoch, in a new order each time."""
    return [pool.next() for _ in range(count)]
