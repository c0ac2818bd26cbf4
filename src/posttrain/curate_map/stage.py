"""rows, evaluation -> finished: one part of the shards, judged by themselves.

The second of the three tasks that curate one file on many machines: each machine takes a part
(`part`: 2/8), and `curate_reduce` decides what needs all of them.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import field_validator

from posttrain.artifacts import ROWS, In, Out
from posttrain.config import Field, Report
from posttrain.curate.parts import FINISHED, PART, Part, keep
from posttrain.curate.stage import CurateConfig, chain_of, executor_of, plan_of
from posttrain.journal import Journal
from posttrain.records import RawRow
from posttrain.sandbox.verdicts import cores


class CurateMapConfig(CurateConfig):
    """The options of `curate`, and which part of the shards."""

    shares = ("curate",)

    part: str = Field("1/1", description="2/8 is the second of eight parts of the shards")

    @field_validator("part")
    @classmethod
    def _is_part(cls, value: str) -> str:
        number, slash, of = value.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ValueError("a part is NUMBER/OF, from 1/OF to OF/OF")
        return value


class CurateMapReport(Report):
    """What was done: shards, and the rows that the local filters left of those that came in."""

    shards: int
    rows_in: int
    left: int


def run(
    config: CurateMapConfig,
    *,
    rows: Annotated[Path, In(RawRow)],
    evaluation: Annotated[Path, In(RawRow)],
    finished: Annotated[Path, Out(FINISHED)],
    journal: Journal,
) -> CurateMapReport:
    """Judge each shard of the part; those that an earlier run finished are not done again."""
    from posttrain.curate.mapping import Finished, learn_all, map_shard
    from posttrain.curate.shards import cut, open_for

    operators, execute = chain_of(config), executor_of(config)
    part, workers = Part.named(config.part, rows, config, operators), config.workers or cores()
    shards = part.own(cut(rows / ROWS, config.shard_bytes))
    work = open_for(journal.scratch, plan_of(config, rows / ROWS, operators))
    learn_all(evaluation, operators, cut(evaluation / ROWS, config.shard_bytes), workers)
    mapped = execute(partial(map_shard, rows, work, operators), shards, workers)
    for done, _ in enumerate(mapped, 1):
        journal.progress(done, len(shards), "shard")
        journal.pause()
    keep(part, work, shards, finished)
    ledgers = [Finished(work, shard).ledger for shard in shards]
    return CurateMapReport(
        shards=len(shards),
        rows_in=sum(ledger["rows_in"] for ledger in ledgers),
        left=sum(ledger["left"] for ledger in ledgers),
    )


def still_holds(outputs: Mapping[str, Path], config: CurateMapConfig) -> str | None:
    """Why a stored part no longer holds: the items of a suite are others now. Else None."""
    from posttrain.curate.checked import changed

    part = Part.model_validate_json((outputs["finished"] / PART).read_bytes())
    return changed(config.filters, part.options["suites"])
