"""A plan of curation for 10^6 to 10^10 rows, from costs measured on a sample here.

`python benchmarks/curate_plan.py [--rows 100000,400000] [--machines 64 --cores 32]` runs the three
tasks of a sharded curation (`docs/data.md`) on made rows with the standard chain, and prints the
CPU time of each operator a row, what a row leaves for `curate_reduce`, and what it holds in memory
there, as the slope between the two sizes. The plan multiplies: that costs grow in proportion to
rows is an assumption beyond the larger size, and machines as fast as this one are too.
"""

import argparse
import hashlib
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from curate import write_rows

from posttrain.artifacts import ROWS
from posttrain.curate.concluding import conclude
from posttrain.curate.ledger import KINDS
from posttrain.curate.mapping import Finished, learn_all, map_shard
from posttrain.curate.operators import learn, remembers, stays
from posttrain.curate.shards import cut, read
from posttrain.curate.stage import CurateConfig, chain_of
from posttrain.curate_learn.stage import held_out

SCALES = [10**power for power in range(6, 11)]
CONFIG = CurateConfig(workers=1)


class Cost(NamedTuple):
    """What a number of rows took: seconds of CPU time, and bytes."""

    rows: int
    size: int
    verify: float
    learn: float
    map: float
    left: int
    reduce: float
    memory: int


def main() -> None:
    """Print the measured costs and the plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="100000,400000")
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--cores", type=int, default=32)
    given = parser.parse_args()
    small, large = (int(each) for each in given.rows.split(","))
    with tempfile.TemporaryDirectory() as name:
        found = []
        for count in (small, large):
            folder = Path(name) / str(count)
            write_rows(folder / ROWS, count)
            if count == small:
                alone(operators, folder, count)
            found.append(Cost(*alone(mapping, folder, count), *alone(reducing, folder, count)))
    tell(*found)
    plan(*found, machines=given.machines, cores=given.cores)


def alone(work: Callable[..., Any], folder: Path, count: int) -> Any:
    """The answer of a function that runs in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (folder, count))


def operators(folder: Path, count: int) -> None:
    """Print the CPU time of each operator a row, all in one shard; `decide` is the reduce's."""
    (shard,) = cut(folder / ROWS, 2**40)
    with cpu() as seconds:
        batch = read(folder, shard)
    print(f"{count:,} rows of {shard.end / count:.0f} bytes; microseconds of CPU time a row")
    print(f"  {'reading':20} {1e6 * seconds[0] / count:6.2f}")
    chain = chain_of(CONFIG)
    learn(chain, batch.keep(batch.kinds() == 0))
    for name, operator in chain:
        rows = len(batch)
        with cpu() as seconds:
            if remembers(operator):
                arrays = operator.sketch(batch)
                room = sum(array.nbytes for array in arrays.values()) / rows
                note = f", {room:.0f} bytes of sketch"
            else:
                answers, note = operator(batch), ""
        print(f"  {name:20} {1e6 * seconds[0] / rows:6.2f}{note}")
        if not remembers(operator):
            batch = batch.keep(stays(answers))


def mapping(folder: Path, count: int) -> tuple[int, int, float, float, float, int]:
    """The first fields of the costs: those of `curate_learn` and `curate_map`."""
    chain, shards = chain_of(CONFIG), cut(folder / ROWS, CONFIG.shard_bytes)
    work, size = folder / "work", (folder / ROWS).stat().st_size
    with cpu() as verify, (folder / ROWS).open("rb") as file:
        hashlib.file_digest(file, "sha256")
    evaluation = folder / "learned"
    evaluation.mkdir()
    with cpu() as learnt, (evaluation / ROWS).open("wb") as file:
        for shard in shards:
            file.write(held_out(folder, shard))
    learn_all(evaluation, chain, cut(evaluation / ROWS, CONFIG.shard_bytes), 1)
    with cpu() as mapped:
        for shard in shards:
            map_shard(folder, work, chain, shard)
    left = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    return count, size, verify[0], learnt[0], mapped[0], left


def reducing(folder: Path, count: int) -> tuple[float, int]:
    """The last fields of the costs: those of `curate_reduce`."""
    chain = chain_of(CONFIG)
    outputs = [folder / "outputs" / kind for kind in KINDS]
    with cpu() as seconds, anonymous_memory() as peak:
        shards = cut(folder / ROWS, CONFIG.shard_bytes)
        finished = [Finished(folder / "work", shard) for shard in shards]
        conclude(CONFIG, chain, finished, rows=folder, outputs=outputs)
    return seconds[0], peak[0]


@contextmanager
def cpu() -> Iterator[list[float]]:
    """Seconds of CPU time of what is inside."""
    found, began = [0.0], time.process_time()
    yield found
    found[0] = time.process_time() - began


@contextmanager
def anonymous_memory() -> Iterator[list[int]]:
    """The most bytes that what is inside holds beyond what was held, mapped files not counted."""
    found, over = [0], threading.Event()
    before = anonymous()

    def watch() -> None:
        while not over.wait(0.005):
            found[0] = max(found[0], anonymous() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    yield found
    over.set()
    thread.join()


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def slope(small: Cost, large: Cost, field: str) -> float:
    """The growth of a field a row."""
    grown = getattr(large, field) - getattr(small, field)
    return float(grown) / (large.rows - small.rows)


def tell(small: Cost, large: Cost) -> None:
    """Print what a row costs each task."""
    print(f"a row, from {small.rows:,} to {large.rows:,} rows")
    for field in ("verify", "learn", "map", "reduce"):
        print(f"  {field:8} {1e6 * slope(small, large, field):7.2f} us")
    for field, what in (("left", "finished shards"), ("memory", "memory of curate_reduce")):
        print(f"  {what:24} {slope(small, large, field):7.0f} bytes")


def plan(small: Cost, large: Cost, *, machines: int, cores: int) -> None:
    """Print the plan: `machines` parts of `cores` each map; one process reduces."""
    print(f"the plan, {machines} machines of {cores} cores map, one process reduces")
    names = ("rows", "input", "core-hours of map", "hours before reduce", "shuffled")
    print(f"| {' | '.join((*names, 'hours of reduce', 'its memory'))} |")
    print("|---|---|---|---|---|---|---|")
    hours = {f: slope(small, large, f) / 3600 for f in ("verify", "learn", "map", "reduce")}
    size, left = (slope(small, large, field) for field in ("size", "left"))
    digest = hours["verify"] / size
    for rows in SCALES:
        work = rows * hours["map"]
        # One machine learns. A part verifies the whole file with one core before its share of the
        # shards, and seals what it leaves; `curate_reduce` verifies all that is left.
        sealing = rows * left * digest
        wall = work / (machines * cores) + rows * (hours["verify"] + hours["learn"] / cores)
        wall += sealing / machines
        cells = [
            f"10^{len(str(rows)) - 1}",
            room(rows * size),
            f"{work:,.1f}",
            f"{wall:,.2f}",
            room(rows * left),
            f"{rows * hours['reduce'] + sealing:,.2f}",
            room(rows * slope(small, large, "memory")),
        ]
        print(f"| {' | '.join(cells)} |")


def room(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


if __name__ == "__main__":
    main()
