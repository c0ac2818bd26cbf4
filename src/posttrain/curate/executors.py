"""Executors: what has the shards worked on; a function of work, shards and how many at once, which
yields the results in the order of the shards.

Work is a pickled function of a shard that leaves its folder in a place that all workers reach.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from posttrain.curate.shards import Shard, each
from posttrain.errors import ConfigError, Fault

Work = Callable[[Shard], Any]


class Executor(Protocol):
    """Has the shards worked on."""

    def __call__(self, work: Work, shards: Sequence[Shard], workers: int, /) -> Iterator[Any]: ...


def processes(work: Work, shards: Sequence[Shard], workers: int, /) -> Iterator[Any]:
    """By processes of this machine."""
    yield from each(work, shards, workers)


def ray(
    work: Work, shards: Sequence[Shard], workers: int, /, *, address: str = "local"
) -> Iterator[Any]:
    """By Ray Data (docs.ray.io), `workers` tasks of one core at once, on the cluster at `address`:
    `auto`, `ray://host:port`, or `local`, which starts one here. Where Ray runs already it is
    used. The folders of rows and of the run must be on a file system that its machines share.
    """
    try:
        import ray as engine
        import ray.data
    except ImportError:
        why, mend = "the package ray is not installed", "pip install 'ray[data]'"
        raise ConfigError(Fault("no Ray", "curate.executor", why, mend)) from None
    if not engine.is_initialized():
        limit = {"num_cpus": workers} if address == "local" else {}
        engine.init(address, log_to_driver=False, include_dashboard=None, **limit)
    engine.data.DataContext.get_current().execution_options.preserve_order = True
    given = engine.data.from_items(
        [each._asdict() for each in shards], override_num_blocks=max(1, len(shards))
    )
    done = given.map(lambda row: {"result": work(Shard(**row))}, num_cpus=1, concurrency=workers)
    for row in done.iter_rows():
        yield row["result"]


EXECUTORS: dict[str, Callable[..., Iterator[Any]]] = {"processes": processes, "ray": ray}
