"""curated; policy, judge (optional) -> selected: choose rows of a set, whatever its record.

Selectors choose one after another: everything, a share, a balanced part, what a policy finds
neither trivial nor hopeless, what a judge is in two minds about, one sample. What they measured
lies beside the rows, also of rows that were not chosen, in `measures.jsonl`.
Left out on purpose: any judgement of what is wrong with a row, which is the work of `curate`.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posttrain import records
from posttrain.artifacts import (
    ANY,
    JUDGE,
    POLICY,
    In,
    Out,
    read_manifest,
    read_rows,
    write_rows,
)
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build

if TYPE_CHECKING:
    from posttrain.select.measures import Measured, Measures
    from posttrain.select.selectors import Selector

FILES_READ = "history.sha256"


class SelectConfig(StageConfig):
    """Which rows, and how what selectors ask of a policy is drawn."""

    selectors: list[Annotated[Plugin, Family("posttrain.select.selectors:SELECTORS")]] = Field(
        [Plugin(name="all")], min_length=1, description="how rows are chosen, one after another"
    )
    at_least: int = Field(1, ge=0, description="fewer rows than this are an error")
    history: Annotated[Plugin | None, Family("posttrain.select.histories:HISTORIES")] = Field(
        None, description="where accuracy histories are read"
    )
    rollouts: int = Field(8, ge=1, description="completions of a prompt that measure it (STAgent)")
    temperature: float = Field(1.0, gt=0, description="of these completions")
    max_new_tokens: int = Field(256, ge=1, description="longest of them, in tokens")
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="where their tokens come from"
    )
    allow_failed_judge: bool = Field(False, description="ask a judge whose panel failed, too")
    chunk: int = Field(64, ge=1, description="rows measured at a time: what a kill makes repeat")


class SelectReport(Report):
    """`left` counts the rows after each selector; `difficulty` and `tasks` the chosen ones.

    `measures` holds the mean of each measurement over all rows that have it.
    """

    rows_read: int
    selected: int
    difficulty: dict[str, int]
    tasks: dict[str, int]
    left: dict[str, int] = {}
    measures: dict[str, float] = {}


def run(
    config: SelectConfig,
    *,
    curated: Annotated[Path, In(ANY)],
    policy: Annotated[Path | None, In(POLICY)] = None,
    judge: Annotated[Path | None, In(JUDGE)] = None,
    selected: Annotated[Path, Out(ANY)],
    journal: Journal,
) -> SelectReport:
    """Write the chosen rows in the order that the last selector gives."""
    from posttrain.select.histories import digests
    from posttrain.select.measures import FILE, Measures
    from posttrain.select.rows import difficulty_of, task_of
    from posttrain.select.selectors import SELECTORS

    chain = [build(SELECTORS, plugin, "select.selectors") for plugin in config.selectors]
    measures = Measures(config, journal.scratch, policy=policy, judge=judge)
    check_inputs(config, chain, measures)
    counts: Counter[int] = Counter()
    difficulty: Counter[str] = Counter()
    tasks: Counter[str] = Counter()

    flows = [counted(read_rows(curated, record_of(curated)), counts, 0)]
    for place, select in enumerate(chain, 1):
        rng = random.Random(f"{config.seed}/select" + (f"/{place}" if place > 1 else ""))
        flows.append(counted(select(flows[-1], rng, measures), counts, place))

    def chosen() -> Iterator[records.Record]:
        for row in flows[-1]:
            difficulty[str(difficulty_of(row) or "unknown")] += 1
            tasks[task_of(row)] += 1
            yield row

    count = write_rows(selected, chosen())
    for flow in reversed(flows):  # a selector that stops early leaves rows that count as read
        deque(flow, maxlen=0)
    names = [f"{place} {plugin.name}" for place, plugin in enumerate(config.selectors, 1)]
    left = {name: counts[place] for place, name in enumerate(names, 1)}
    if count < config.at_least:
        told = ", ".join(f"`{name}` left {number}" for name, number in left.items())
        why = f"of {counts[0]} read {told}; {config.at_least} wanted"
        mend = "make more raw rows, or lower `at_least`"
        raise DataError(Fault("too few rows", str(curated), why, mend))
    if noted := measures.noted():
        write_rows(selected, noted, FILE)
    if config.history:
        (selected / FILES_READ).write_text(digests(config.history), encoding="utf-8")
    journal.progress(count, count, "row")
    return SelectReport(
        rows_read=counts[0],
        selected=count,
        difficulty=dict(sorted(difficulty.items())),
        tasks=dict(sorted(tasks.items())),
        left=left,
        measures=means(noted),
    )


def check_inputs(config: SelectConfig, chain: "list[Selector]", measures: "Measures") -> None:
    """Ask every selector about no rows; raise ConfigError with every input that is missing."""
    faults: list[Fault] = []
    for plugin, select in zip(config.selectors, chain, strict=True):
        try:
            list(select([], random.Random(0), measures))
        except ConfigError as error:
            where = f"select.selectors.{plugin.name}"
            faults += [replace(fault, where=where) for fault in error.faults]
    if faults:
        raise ConfigError(*faults)


def counted(
    rows: Iterable[records.Record], counts: Counter[int], place: int
) -> Iterator[records.Record]:
    """The rows, counted as they pass."""
    for row in rows:
        counts[place] += 1
        yield row


def means(noted: "list[Measured]") -> dict[str, float]:
    """The mean of each measurement."""
    names = sorted({name for row in noted for name in row.measures})
    return {
        name: math.fsum(found) / len(found)
        for name in names
        for found in [[row.measures[name] for row in noted if name in row.measures]]
    }


def record_of(folder: Path) -> type[records.Record]:
    """The record class of a dataset folder, by the name in its manifest."""
    name = read_manifest(folder).record
    found = getattr(records, name, None)
    if isinstance(found, type) and issubclass(found, records.Record):
        return found
    why = f"its manifest says `{name}`, which is no record of rows"
    raise DataError(Fault("not a dataset", str(folder), why, "give the folder of a dataset"))


def preflight(config: SelectConfig) -> Iterator[Fault]:
    """A history that is not there."""
    from posttrain.select.histories import absent

    yield from absent(config.history) if config.history else ()


def still_holds(outputs: Mapping[str, Path], config: SelectConfig) -> str | None:
    """A stored choice no longer holds when the histories that it was made by have changed."""
    from posttrain.select.histories import digests

    stored = outputs["selected"] / FILES_READ
    same = not config.history or stored.read_text("utf-8") == digests(config.history)
    return None if same else "the history has changed"
