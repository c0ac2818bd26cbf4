"""curated -> selected: choose rows of a curated set, whatever its record.

One selector decides: everything, a share, a balanced part, one sample.
Left out on purpose: any judgement of quality, which is the work of `curate`.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from posttrain import records
from posttrain.artifacts import ANY, In, Out, read_manifest, read_rows, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build


class SelectConfig(StageConfig):
    """Which rows."""

    selector: Annotated[Plugin, Family("posttrain.select.selectors:SELECTORS")] = Field(
        Plugin(name="all"), description="how rows are chosen"
    )
    at_least: int = Field(1, ge=0, description="fewer rows than this are an error")


class SelectReport(Report):
    """How many rows came in and were chosen; `difficulty` and `tasks` count the chosen ones."""

    rows_read: int
    selected: int
    difficulty: dict[str, int]
    tasks: dict[str, int]


def run(
    config: SelectConfig,
    *,
    curated: Annotated[Path, In(ANY)],
    selected: Annotated[Path, Out(ANY)],
    journal: Journal,
) -> SelectReport:
    """Write the chosen rows in the order that the selector gives."""
    from posttrain.select.selectors import SELECTORS, difficulty_of, task_of

    select = build(SELECTORS, config.selector, "select.selector")
    record = record_of(curated)
    rows_read = 0
    difficulty: Counter[str] = Counter()
    tasks: Counter[str] = Counter()

    def source() -> Iterator[records.Record]:
        nonlocal rows_read
        for row in read_rows(curated, record):
            rows_read += 1
            yield row

    def chosen() -> Iterator[records.Record]:
        for row in select(source(), random.Random(f"{config.seed}/select")):
            difficulty[str(difficulty_of(row) or "unknown")] += 1
            tasks[task_of(row)] += 1
            yield row

    count = write_rows(selected, chosen())
    if count < config.at_least:
        why = (
            f"`{config.selector.name}` chose {count} of {rows_read} read; {config.at_least} wanted"
        )
        mend = "make more raw rows, or lower `at_least`"
        raise DataError(Fault("too few rows", str(curated), why, mend))
    journal.progress(count, count, "row")
    return SelectReport(
        rows_read=rows_read,
        selected=count,
        difficulty=dict(sorted(difficulty.items())),
        tasks=dict(sorted(tasks.items())),
    )


def record_of(folder: Path) -> type[records.Record]:
    """The record class of a dataset folder, by the name in its manifest."""
    name = read_manifest(folder).record
    found = getattr(records, name, None)
    if isinstance(found, type) and issubclass(found, records.Record):
        return found
    why = f"its manifest says `{name}`, which is no record of rows"
    raise DataError(Fault("not a dataset", str(folder), why, "give the folder of a dataset"))
