"""The two passes of curation: each shard by itself, then all of them against each other.

The first is the work of processes. It leaves a folder for each shard: `rows.arrow` (every row, and
the local filter that dropped it), the output lines of the rows that are left, the sketches of the
filters with memory, and `ledger.json`. The second reads the sketches in the order of the input.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from posttrain.artifacts import write_json
from posttrain.curate.batch import Batch
from posttrain.curate.ledger import KEPT, KINDS, DroppedRow
from posttrain.curate.operators import Learning, Operator, Reasons, Sketch, learn, remembers, stays
from posttrain.curate.rows import lines
from posttrain.curate.shards import Shard, read, write_array, write_whole

LEDGER = "ledger.json"
_TABLE = "rows.arrow"
Chain = Sequence[tuple[str, Operator]]


def learn_all(folder: Path, operators: Chain, shards: Sequence[Shard], workers: int) -> None:
    """Show the evaluation rows of every shard to the filters that learn."""
    if not any(isinstance(operator, Learning) for _, operator in operators):
        return
    # Arrow reads without the interpreter's lock: threads will do, and start at once.
    with ThreadPoolExecutor(workers) as pool:
        for table in pool.map(partial(_evaluation, folder), shards):
            learn(operators, Batch(table))


def _evaluation(folder: Path, shard: Shard) -> pa.Table:
    batch = read(folder, shard)
    return batch.keep(batch.kinds() == 0).table


def map_shard(folder: Path, work: Path, operators: Chain, shard: Shard) -> int:
    """Do a shard unless its folder is there; return its number."""
    home = place(work, shard)
    if not home.is_dir():
        batch = read(folder, shard)
        write_whole(home, partial(_write, batch, operators))
    return shard.number


def place(work: Path, shard: Shard) -> Path:
    """Where a finished shard stands."""
    return work / f"{shard.number:06}"


def _write(batch: Batch, operators: Chain, home: Path) -> None:
    whole, rows = batch, len(batch)
    dropped = np.full(rows, KEPT, dtype=np.int8)
    why: list[str | None] = [None] * rows
    flows: dict[str, dict[str, int]] = {}
    for step, (name, operator) in enumerate(operators):
        if remembers(operator):
            for key, array in operator.sketch(batch).items():
                write_array(home / f"{step}-{key}.npy", array)
            write_array(home / f"{step}.npy", batch.numbers)
            continue
        answers = operator(batch)
        kept = stays(answers)
        for number, answer in zip(batch.numbers, answers, strict=True):
            if answer is not None:
                dropped[number], why[number] = step, answer
        flows[name] = {"rows_in": len(batch), "dropped": int((~kept).sum())}
        batch = batch.keep(kept)
    for kind in KINDS:
        with (home / f"{kind}.jsonl").open("wb") as file:
            file.writelines(lines(batch, kind))
    columns = {name: whole.column(name) for name in ("id", "source", "difficulty")}
    columns |= {"kind": pa.array(whole.kinds()), "dropped": pa.array(dropped)}
    columns["why"] = pa.array(why, pa.string())
    for name in ("chosen", "rejected"):
        columns[f"{name}_size"] = pc.fill_null(pc.utf8_length(whole.column(name)), 0)
    table = pa.table(columns)
    with (home / _TABLE).open("wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    write_json(home / LEDGER, {"rows_in": rows, "left": len(batch), "filters": flows})


class Finished:
    """A finished shard; `dropped` says of each row which filter dropped it, or KEPT."""

    def __init__(self, work: Path, shard: Shard) -> None:
        self.shard = shard
        self.home = home = place(work, shard)
        self.ledger = json.loads((home / LEDGER).read_text(encoding="utf-8"))
        self.dropped: NDArray[np.int8] = self.column("dropped").to_numpy().copy()
        self._late: dict[int, str] = {}

    def column(self, name: str) -> pa.Array:
        """A column of the shard's rows."""
        with pa.memory_map(str(self.home / _TABLE)) as file:
            return pa.ipc.open_file(file).read_all().column(name).combine_chunks()

    def sketch(self, step: int) -> tuple[NDArray[np.int64], Sketch]:
        """What the filter at `step` wrote, and of which rows."""

        def load(name: str) -> NDArray[Any]:
            found: NDArray[Any] = np.load(self.home / f"{step}-{name}.npy", mmap_mode="r")
            return found

        rows = np.load(self.home / f"{step}.npy")
        return rows, Sketch(load, self.dropped[rows] > step)

    def drop(self, rows: NDArray[np.int64], step: int, answers: Reasons) -> None:
        """Drop the rows that have a reason and that no earlier filter dropped."""
        for row, why in zip(rows, answers, strict=True):
            if why is not None and self.dropped[row] > step:
                self.dropped[row], self._late[int(row)] = step, why

    def dropped_rows(self, kind: str) -> Iterator[DroppedRow]:
        """The dropped rows of a kind, in order."""
        own = self.column("kind").to_numpy() == KINDS.index(kind)
        rows = np.flatnonzero(own & (self.dropped != KEPT))
        ids, sources, early = (
            self.column(name).take(rows).to_pylist() for name in ("id", "source", "why")
        )
        for row, row_id, source, why in zip(rows.tolist(), ids, sources, early, strict=True):
            reason = self._late.get(row, why)
            yield DroppedRow(row, row_id, source, int(self.dropped[row]), reason)

    def kept_lines(self, kind: str) -> Iterator[bytes]:
        """The output lines of the kept rows of a kind."""
        own = self.column("kind").to_numpy() == KINDS.index(kind)
        written = own & (self.column("dropped").to_numpy() == KEPT)
        with (self.home / f"{kind}.jsonl").open("rb") as file:
            for line, stands in zip(file, self.dropped[written] == KEPT, strict=True):
                if stands:
                    yield line


def settle(operators: Chain, shards: Sequence[Finished]) -> None:
    """Let the filters with memory decide, in the order of the chain and of the input."""
    for step, (_, operator) in enumerate(operators):
        if not (shards and remembers(operator)):
            continue
        pairs = [shard.sketch(step) for shard in shards]
        answers = operator.decide([sketch for _, sketch in pairs])
        for shard, (rows, _), found in zip(shards, pairs, answers, strict=True):
            shard.drop(rows, step, found)
