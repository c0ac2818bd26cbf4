"""every artifact of a run -> page

One HTML file that a person reads (`report.html`), the numbers that a program reads
(`summary.json`), and what both were drawn from (`facts.json`), so that `finish` can draw them
again with times. Left out on purpose: times and the gate's nights, unless asked for, because two
runs with the same seed must give the same bytes; and any other request to the network.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import ANY, PAGE, In, Out, read_manifest, write_json
from posttrain.config import Field, Report, StageConfig
from posttrain.gate.nights import Night, nights
from posttrain.journal import Journal
from posttrain.registry import RegistryError
from posttrain.report.facts import FACTS, read_facts

PAGE_FILE = "report.html"
SUMMARY_FILE = "summary.json"


class ReportConfig(StageConfig):
    """What the page shows."""

    title: str = Field("Post-training report", description="heading of the page")
    suite: str = Field("", description="suite of the ladder; empty: the one with the most items")
    examples: int = Field(8, ge=0, le=100, description="items shown side by side")
    times: bool = Field(
        False, description="seconds from the manifests; for clusters, where no launcher adds them"
    )
    registry_uri: str = Field(
        "", description="MLflow whose nights of the gate are plotted; empty: none"
    )
    model_name: str = Field("posttrain-policy", min_length=1, description="the gate's model there")


class ReportReport(Report):
    """What the page holds; `missing` names the sections for which the run has nothing."""

    artifacts: int
    bytes: int
    suite: str
    missing: list[str]
    pass_at_1: dict[str, float]


def run(
    config: ReportConfig,
    *,
    inputs: Annotated[Sequence[Path], In(ANY)],
    page: Annotated[Path, Out(PAGE)],
    journal: Journal,
) -> ReportReport:
    """Read the artifacts, draw the page, sum up."""
    from posttrain.report.gather import gather
    from posttrain.report.page import SECTIONS, render
    from posttrain.report.summary import summarise, with_times
    from posttrain.report.times import times_of_manifests

    found = gather(
        inputs,
        title=config.title,
        suite=config.suite,
        examples=config.examples,
        seed=config.seed,
    ).model_copy(update={"nights": past(config) or []})
    times = times_of_manifests(map(read_manifest, inputs)) if config.times else None
    page.mkdir(parents=True)
    write_json(page / FACTS, found.model_dump(mode="json"))
    # Drawn from the file, as `finish` draws it: the order of keys is the file's.
    facts = read_facts(page)
    summary = summarise(facts)
    html = render(facts, times)
    (page / PAGE_FILE).write_text(html, encoding="utf-8")
    write_json(
        page / SUMMARY_FILE,
        (with_times(summary, times) if times else summary).model_dump(mode="json"),
    )
    journal.progress(1, 1, "page")
    return ReportReport(
        artifacts=len(facts.artifacts),
        bytes=len(html.encode()),
        suite=facts.suite,
        missing=[anchor for anchor, draw in SECTIONS.items() if draw(facts, times).missing],
        pass_at_1={policy: found.value for policy, found in facts.ladder.items()},
    )


def past(config: ReportConfig) -> list[Night] | None:
    """The nights to plot; None where their registry is away, which is told."""
    if not config.registry_uri:
        return []
    try:
        return nights(config.registry_uri, config.model_name)
    except RegistryError as error:
        print(f"report: {error}", file=sys.stderr)
        return None


def still_holds(outputs: Mapping[str, Path], config: ReportConfig) -> str | None:
    """Why a stored page no longer holds: the gate has judged since. Else None."""
    found = past(config)
    if found is None or found == read_facts(outputs["page"]).nights:
        return None
    return "there are other nights to plot now"
