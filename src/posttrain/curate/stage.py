"""rows -> prompts, demonstrations, preferences, evaluation: raw rows, judged one by one.

Each row of a kind goes through the filters in order; the first that gives a reason drops it,
and every drop is counted and written to `dropped.jsonl` beside the prompts.
Left out on purpose: mending of rows (a mended row is a guess), and choosing among good rows,
which is the work of `select`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posttrain.artifacts import In, Out, read_rows, write_json, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.curate.ledger import Drop, DropSample, Flow, Ledger
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Demonstration, Preference, Prompt, RawRow

if TYPE_CHECKING:
    from posttrain.curate.filters import Filter

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


class CurateReport(Report):
    """Every row is accounted for: rows_in = kept + dropped, in all, by kind and by source.

    `filters` counts drops by filter and kind, `reasons` by `filter: reason`, `difficulty` the
    kept rows by kind and band.
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
    """Judge every row, kind after kind, and write what was kept in the order it came."""
    from posttrain.curate.filters import FILTERS
    from posttrain.curate.rows import MAKERS

    made = [(each.name, build(FILTERS, each, "curate.filters")) for each in config.filters]
    filters: list[tuple[str, Filter]] = [(name, make()) for name, make in made]
    # The evaluation rows come first: the others are compared with them.
    folders = {
        "evaluation": evaluation,
        "demonstrations": demonstrations,
        "preferences": preferences,
        "prompts": prompts,
    }
    ledger = Ledger(tuple(folders), (name for name, _ in filters), config.sample_characters)
    prompts.mkdir(parents=True)

    with (prompts / DROPPED).open("w", encoding="utf-8") as dropped:

        def kept(kind: str) -> Iterator[RawRow]:
            for row in read_rows(rows, RawRow):
                if row.kind != kind:
                    continue
                drop = judge(row, filters)
                if drop is None:
                    ledger.keep(row)
                    yield row
                else:
                    ledger.drop(row, drop)
                    line = {"id": row.id, "kind": kind, "source": row.source, **drop._asdict()}
                    dropped.write(json.dumps(line, ensure_ascii=False) + "\n")

        for done, (kind, folder) in enumerate(folders.items(), 1):
            write_rows(folder, map(MAKERS[kind], kept(kind)))
            journal.progress(done, len(folders), "kind")

    report = close(ledger)
    if not report.kept:
        why = ", ".join(f"{reason} ({count})" for reason, count in report.reasons.items())
        raise DataError(Fault("no row was kept", str(rows), why or "no rows", "mend the rows"))
    write_plots(prompts, report)
    return report


def judge(row: RawRow, filters: "list[tuple[str, Filter]]") -> Drop | None:
    """The first filter that drops the row, and its reason; None when all keep it."""
    for name, keep_or_reason in filters:
        reason = keep_or_reason(row)
        if reason is not None:
            return Drop(name, reason)
    return None


def close(ledger: Ledger) -> CurateReport:
    """The report of the books."""
    return CurateReport(
        **ledger.total().model_dump(),
        kinds=ledger.by_kind(),
        sources=ledger.by_source(),
        filters={name: dict(sorted(counts.items())) for name, counts in ledger.filters.items()},
        reasons=dict(sorted(ledger.reasons.items())),
        difficulty={kind: dict(sorted(c.items())) for kind, c in ledger.difficulty.items()},
        samples=ledger.samples,
    )


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
