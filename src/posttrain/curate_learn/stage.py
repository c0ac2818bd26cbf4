"""rows -> evaluation: the raw rows of the evaluation split, for filters that learn from them.

The first of the three tasks that curate one file on many machines (`docs/data.md`); on one
machine `curate` does the work of all three.
"""

from functools import partial
from itertools import compress
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import ROWS, In, Out
from posttrain.config import Report
from posttrain.curate.shards import Shard
from posttrain.curate.stage import CurateConfig, executor_of
from posttrain.journal import Journal
from posttrain.records import RawRow
from posttrain.sandbox.verdicts import cores


class CurateLearnConfig(CurateConfig):
    """The options of `curate`; the filters are those that the rows are for."""

    shares = ("curate",)


class CurateLearnReport(Report):
    """How many rows are for evaluation."""

    evaluation: int


def run(
    config: CurateLearnConfig,
    *,
    rows: Annotated[Path, In(RawRow)],
    evaluation: Annotated[Path, Out(RawRow)],
    journal: Journal,
) -> CurateLearnReport:
    """Copy the evaluation rows, in their order."""
    from posttrain.curate.shards import cut

    execute = executor_of(config)
    shards, count = cut(rows / ROWS, config.shard_bytes), 0
    evaluation.mkdir(parents=True)
    with (evaluation / ROWS).open("wb") as file:
        found = execute(partial(held_out, rows), shards, config.workers or cores())
        for done, lines in enumerate(found, 1):
            file.write(lines)
            count += lines.count(b"\n")
            journal.progress(done, len(shards), "shard")
    return CurateLearnReport(evaluation=count)


def held_out(rows: Path, shard: Shard) -> bytes:
    """The lines of a shard that are for evaluation."""
    from posttrain.curate.shards import lines_of, read

    mask = read(rows, shard).kinds() == 0
    lines = compress(lines_of(rows, shard).split(b"\n"), mask)
    return b"".join(line + b"\n" for line in lines)
