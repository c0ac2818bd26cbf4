"""After a run: draw its page again with the times that no artifact may hold."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posttrain.artifacts import write_json
from posttrain.report.facts import read_facts
from posttrain.report.page import render
from posttrain.report.screen import verdict_screen
from posttrain.report.stage import PAGE_FILE, SUMMARY_FILE
from posttrain.report.summary import summarise, with_times
from posttrain.report.times import StageRecord, times_of

__all__ = ["finish", "verdict_screen"]


def finish(
    page: Path,
    records: Iterable[Mapping[str, Any]],
    out: Path,
    *,
    wall_seconds: float | None = None,
) -> dict[str, Any]:
    """Write `report.html` and `summary.json` into `out`; return the summary.

    `page` is the report's artifact; `records` are those in `<run>/stages/*.json`.
    """
    facts = read_facts(page)
    times = times_of(map(StageRecord.model_validate, records), wall_seconds)
    out.mkdir(parents=True, exist_ok=True)
    (out / PAGE_FILE).write_text(render(facts, times), encoding="utf-8")
    summary = with_times(summarise(facts), times).model_copy(
        update={"report": str(out / PAGE_FILE)}
    )
    plain: dict[str, Any] = summary.model_dump(mode="json")
    write_json(out / SUMMARY_FILE, plain)
    return plain
