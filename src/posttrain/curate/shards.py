"""Shards: parts of a file of rows, cut at line ends, read into columns and worked on by processes.

A shard is a range of bytes, so nothing is copied to cut one, and where the cuts fall depends on
the file alone. What a process makes of a shard is a folder that appears whole or not at all.
"""

import functools
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray
from pydantic import ValidationError

from posttrain.artifacts import MAX_ROW_BYTES, ROWS, read_rows
from posttrain.curate.batch import SCHEMA, Batch
from posttrain.errors import Fault, TransientError
from posttrain.records import RawRow

Result = TypeVar("Result")

_WORTH_A_PROCESS = 4
_REQUIRED = ("id", "source", "task", "prompt", "split")
_PARSE = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="error")


class Shard(NamedTuple):
    """Bytes `start` to `end` of a file of JSON lines."""

    number: int
    start: int
    end: int


def cut(path: Path, size: int) -> list[Shard]:
    """Cut a file into shards of about `size` bytes."""
    ends = [0]
    whole = path.stat().st_size
    with path.open("rb") as file:
        while ends[-1] < whole:
            file.seek(ends[-1] + size)
            # A line without end stops here and is refused where it is read.
            file.readline(MAX_ROW_BYTES + 1)
            ends.append(min(file.tell(), whole))
    pairs = itertools.pairwise(ends)
    return [Shard(number, *ends) for number, ends in enumerate(pairs)]


def read(folder: Path, shard: Shard) -> Batch:
    """The rows of a shard; a bad row is a `DataError` that names its line."""
    data = lines_of(folder, shard)
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    if np.diff(ends, prepend=-1).max(initial=0) > MAX_ROW_BYTES:
        _tell(folder)
    table = _columns(data, len(ends))
    return Batch.of(_one_by_one(folder, data, len(ends))) if table is None else Batch(table)


def _one_by_one(folder: Path, data: bytes, count: int) -> list[RawRow]:
    """Rows of which some line is unusual or bad."""
    try:
        return [RawRow.model_validate_json(line) for line in data.split(b"\n")[:count]]
    except ValidationError:
        _tell(folder)
        raise


def _tell(folder: Path) -> None:
    """Raise the DataError of the first bad row, as every reader of rows tells it."""
    for _ in read_rows(folder, RawRow):
        pass


def lines_of(folder: Path, shard: Shard) -> bytes:
    """The bytes of a shard."""
    with (folder / ROWS).open("rb") as file:
        file.seek(shard.start)
        return file.read(shard.end - shard.start)


@functools.lru_cache(maxsize=1)
def _split(folder: Path, shard: Shard) -> list[bytes]:
    return lines_of(folder, shard).split(b"\n")


def row_of(folder: Path, shard: Shard, number: int) -> RawRow:
    """One row of a shard, by its place there."""
    return RawRow.model_validate_json(_split(folder, shard)[number])


def _columns(data: bytes, count: int) -> pa.Table | None:
    """The rows as columns, or None where a line is not plainly a good row."""
    options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pj.read_json(pa.BufferReader(data), options, _PARSE).select(SCHEMA.names)
        table.validate(full=True)
    except pa.ArrowInvalid:
        return None
    known = pc.is_in(table.column("split"), pa.array(["train", "eval"]))
    share = pc.drop_null(table.column("agreement"))
    plain = (
        len(table) == count
        and not any(table.column(name).null_count for name in _REQUIRED)
        and pc.all(known).as_py()
        and pc.all(pc.and_(pc.greater_equal(share, 0), pc.less_equal(share, 1))).as_py()
    )
    return table if plain else None


def each(
    work: Callable[[Shard], Result], shards: Sequence[Shard], workers: int
) -> Iterator[Result]:
    """What `work` returns for each shard, in order; by `workers` processes if there is enough to
    do: one takes as long to start as a few shards take."""
    workers = min(workers, len(shards) // _WORTH_A_PROCESS)
    if workers <= 1:
        yield from map(work, shards)
        return
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _enter, (work,)) as pool:
            yield from pool.map(_call, shards)
    except BrokenProcessPool as error:
        why = f"{error}; out of memory?"
        mend = "take fewer `workers` or more memory; run again, finished shards are kept"
        raise TransientError(Fault("a worker was killed", "curate.workers", why, mend)) from error


_work: Callable[[Shard], Any]


def _enter(work: Callable[[Shard], Any]) -> None:
    """Make a process ready: it works for the one that started it, and ends with it."""
    global _work
    _work = work
    # Its parent decides when to stop, and a shard that is begun may be finished.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _call(shard: Shard) -> Any:
    return _work(shard)


def write_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder that appears whole or not at all, on disk before it appears."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for path in (*partial.iterdir(), partial):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    if folder.is_dir():
        shutil.rmtree(partial)
    else:
        partial.rename(folder)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array so that it can be mapped; a full disk is an OSError with its number."""
    with path.open("wb") as file:
        # numpy writes past the Python file, and tells of a full disk without the number.
        header = np.lib.format.header_data_from_array_1_0(array := np.ascontiguousarray(array))
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.tobytes())


def open_for(scratch: Path, plan: dict[str, Any]) -> Path:
    """The folder of finished shards, empty unless they were made by the same plan."""
    folder, noted = scratch / "shards", scratch / "shards" / "plan.json"
    if not noted.is_file() or json.loads(noted.read_text(encoding="utf-8")) != plan:
        shutil.rmtree(folder, ignore_errors=True)
        write_whole(folder, lambda partial: _note(partial / "plan.json", plan))
    return folder


def _note(path: Path, plan: dict[str, Any]) -> None:
    path.write_text(json.dumps(plan, sort_keys=True), encoding="utf-8")
