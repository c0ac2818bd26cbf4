"""rows -> prompts, demonstrations, preferences, evaluation: raw rows, judged shard by shard.

Each row goes through the filters in order; the first that gives a reason drops it, and every drop
is counted and written to `dropped.jsonl` beside the prompts. Finished shards outlive a kill, and
neither shards nor processes change what comes out.
Left out on purpose: mending of rows (a mended row is a guess), and choosing among good rows,
which is the work of `select`.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posttrain.artifacts import ROWS, In, Out, read_manifest, write_json
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.curate.ledger import DropSample, Flow, Ledger, LengthBias, SuiteCheck
from posttrain.durable import discard
from posttrain.exposure import Exposure, version_of
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Demonstration, Preference, Prompt, RawRow
from posttrain.sandbox.verdicts import cores

if TYPE_CHECKING:
    from posttrain.curate.executors import Executor
    from posttrain.curate.mapping import Chain

DROPPED = "dropped.jsonl"
DROPS_PLOT = "drops.json"
DIFFICULTY_PLOT = "difficulty.json"

DEFAULT_FILTERS = (
    "schema",
    "length",
    "identical_pair",
    "wrong_answer",
    "contamination",
    "exact_duplicate",
    "near_duplicate",
)


class CurateConfig(StageConfig):
    """Which filters, in which order."""

    filters: list[Annotated[Plugin, Family("posttrain.curate.filters:FILTERS")]] = Field(
        [Plugin(name=name) for name in DEFAULT_FILTERS],
        description="filters in order; those that remember rows belong at the end",
    )
    sample_characters: int = Field(
        160, ge=0, description="characters of each dropped row shown in the report; 0 shows none"
    )
    workers: int = Field(0, ge=0, description="processes; 0: one per core, at most 8")
    executor: Annotated[Plugin, Family("posttrain.curate.executors:EXECUTORS")] = Field(
        Plugin(name="processes"), description="what runs the workers"
    )
    shard_bytes: int = Field(
        4 * 2**20, ge=1, description="bytes of rows that a process takes at a time"
    )


class CurateReport(Report):
    """Every row is accounted for: rows_in = kept + dropped, in all, by kind and by source.

    `filters` counts drops by filter and kind, `reasons` by `filter: reason`, `difficulty` the
    kept rows by kind and band, `shards` the flow through each filter, shard by shard. `suites` are
    those that the training rows were checked against, the evaluation rows among them; `absent`
    says of `all` suites which could not be had, and why.
    """

    rows_in: int
    kept: int
    dropped: int
    kinds: dict[str, Flow]
    sources: dict[str, Flow]
    filters: dict[str, dict[str, int]]
    reasons: dict[str, int]
    difficulty: dict[str, dict[str, int]]
    samples: list[DropSample]
    shards: list[dict[str, Flow]] = []
    length_bias: LengthBias | None = None
    suites: dict[str, SuiteCheck] = {}
    absent: dict[str, str] = {}


def run(
    config: CurateConfig,
    *,
    rows: Annotated[Path, In(RawRow)],
    prompts: Annotated[Path, Out(Prompt)],
    demonstrations: Annotated[Path, Out(Demonstration)],
    preferences: Annotated[Path, Out(Preference)],
    evaluation: Annotated[Path, Out(Prompt)],
    journal: Journal,
) -> CurateReport:
    """Judge every row, shard by shard, and write what was kept kind by kind, in its order."""
    from posttrain.curate.concluding import conclude
    from posttrain.curate.mapping import Finished, learn_all, map_shard
    from posttrain.curate.shards import cut, open_for

    operators, execute = chain_of(config), executor_of(config)
    shards, workers = cut(rows / ROWS, config.shard_bytes), config.workers or cores()
    work = open_for(journal.scratch, plan_of(config, rows / ROWS, operators))
    learn_all(rows, operators, shards, workers)
    for done in execute(partial(map_shard, rows, work, operators), shards, workers):
        journal.progress(done + 1, len(shards), "shard")
        journal.pause()
    finished = [Finished(work, shard) for shard in shards]
    outputs = (evaluation, demonstrations, preferences, prompts)
    report = conclude(config, operators, finished, rows=rows, outputs=outputs)
    discard(work)
    return report


def chain_of(config: CurateConfig) -> "Chain":
    """The filters by name; all are built before the first loads anything."""
    from posttrain.curate.filters import FILTERS

    made = [(each.name, build(FILTERS, each, "curate.filters")) for each in config.filters]
    return [(name, make()) for name, make in made]


def executor_of(config: CurateConfig) -> "Executor":
    """What runs the workers."""
    from posttrain.curate.executors import EXECUTORS

    return build(EXECUTORS, config.executor, "curate.executor")


def plan_of(config: CurateConfig, rows: Path, operators: "Chain") -> dict[str, Any]:
    """What finished shards depend on."""
    from posttrain.curate.checked import versions

    about = rows.stat()
    return {
        "config": config.model_dump(mode="json", exclude={"workers", "executor"}),
        "rows": [about.st_size, about.st_mtime_ns],
        "suites": versions(operators),
    }


def close(
    ledger: Ledger, suites: Mapping[str, SuiteCheck], absent: Mapping[str, str]
) -> CurateReport:
    """The report of the books."""
    return CurateReport(
        **ledger.total().model_dump(),
        kinds=ledger.by_kind(),
        sources=ledger.by_source(),
        filters={name: dict(sorted(counts.items())) for name, counts in ledger.filters.items()},
        reasons=dict(sorted(ledger.reasons.items())),
        difficulty={kind: dict(sorted(c.items())) for kind, c in ledger.difficulty.items()},
        samples=ledger.samples,
        shards=ledger.shards,
        length_bias=ledger.length_bias(),
        suites=dict(suites),
        absent=dict(absent),
    )


def exposure(config: CurateConfig, report: Mapping[str, Any]) -> Exposure:
    """The tests that the training rows were checked against."""
    return Exposure(
        checked=tuple(version_of(name, each["version"]) for name, each in report["suites"].items())
    )


def still_holds(outputs: Mapping[str, Path], config: CurateConfig) -> str | None:
    """Why stored rows no longer hold: the items of a suite are others now. Else None."""
    from posttrain.curate.checked import changed

    stored = read_manifest(outputs["prompts"]).report["suites"]
    return changed(config.filters, {name: each["version"] for name, each in stored.items()})


def write_plots(folder: Path, report: CurateReport) -> None:
    """The tables that `dvc plots` draws: drops by filter, kept rows by difficulty."""
    drops = [
        {"filter": name, "kind": kind, "rows": count}
        for name, kinds in report.filters.items()
        for kind, count in kinds.items()
    ]
    bands = [
        {"difficulty": band, "kind": kind, "rows": count}
        for kind, counts in report.difficulty.items()
        for band, count in counts.items()
    ]
    write_json(folder / DROPS_PLOT, drops)
    write_json(folder / DIFFICULTY_PLOT, bands)
