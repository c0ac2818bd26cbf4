"""What curation took out of the raw rows, and why."""

from collections.abc import Mapping
from typing import Any

from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, el, folded, join, percent, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

SAMPLES = 2


def draw(facts: Facts, times: Times | None) -> Section:
    """Bars by filter and reason, the flow by kind and source, and rows that went."""
    report = facts.report("curate")
    if report is None:
        return absent("Curation", "No curated data among the inputs.")
    total, gone = report.get("rows_in", 0), report.get("dropped", 0)
    share = f" ({percent(gone / total)})" if total else ""
    lead = (
        f"{short(gone)} of {short(total)} raw rows{share} were taken out. A row goes at the first"
        " filter that gives a reason, so the filters' order matters."
    )
    body = el(
        "div", el("div", bars(report), samples(report)), el("div", flows(report)), class_="columns"
    )
    return Section("Curation", lead, body)


def bars(report: Mapping[str, Any]) -> Html:
    """One row a reason, the largest first."""
    reasons = report.get("reasons", {})
    most = max(reasons.values(), default=0)
    if not most:
        return el("p", "No row was taken out.")
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rows: list[list[Child]] = []
    for name, count in ranked:
        by, _, reason = name.replace("_", " ").partition(": ")
        reason = "" if reason == by else reason
        bar = el("i", class_="bar s1", style=f"width:{100 * count / most:.1f}%")
        rows.append(
            [
                join(by, el("small", f" {reason}")),
                short(count),
                el("td", bar, class_="barcell"),
            ]
        )
    return table(["filter and reason", "rows", ""], rows, numeric=(1,))


def flows(report: Mapping[str, Any]) -> Html:
    """In, kept and dropped, by kind of row and by source."""
    parts: list[Child] = []
    for key, name in (("kinds", "kind"), ("sources", "source")):
        rows: list[list[Child]] = [
            [
                what.replace("_", " "),
                short(flow.get("rows_in")),
                short(flow.get("kept")),
                short(flow.get("dropped")),
            ]
            for what, flow in report.get(key, {}).items()
        ]
        if rows:
            parts.append(table([name, "rows in", "kept", "dropped"], rows, numeric=(1, 2, 3)))
    return join(parts)


def samples(report: Mapping[str, Any]) -> Html | None:
    """The first few rows that went for each reason."""
    shown: dict[str, int] = {}
    rows: list[list[Child]] = []
    for sample in report.get("samples", []):
        reason = f"{sample.get('filter')}: {sample.get('reason')}"
        shown[reason] = shown.get(reason, 0) + 1
        if shown[reason] <= SAMPLES:
            rows.append(
                [reason.replace("_", " "), el("span", str(sample.get("text", "")), class_="quote")]
            )
    if not rows:
        return None
    return folded(f"{len(rows)} of the rows", table(["reason", "row, from its start"], rows))
