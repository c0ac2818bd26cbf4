"""What curation took out of the raw rows, and why."""

from collections.abc import Mapping
from typing import Any

from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, el, folded, join, percent, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

SAMPLES = 2


def draw(facts: Facts, times: Times | None) -> Section:
    """Bars by filter and reason, rows that went, the flow by filter, kind and source, the length of
    the kept pairs, and the suites that training rows were checked against."""
    report = facts.report("curate")
    if report is None:
        return absent("Curation", "No curated data among the inputs.")
    total, gone = report.get("rows_in", 0), report.get("dropped", 0)
    share = f" ({percent(gone / total)})" if total else ""
    lead = (
        f"{short(gone)} of {short(total)} raw rows{share} were taken out. A row goes at the first"
        " filter that gives a reason, so the filters' order matters."
    )
    told = el("div", bars(report), samples(report), suites(report))
    counted = el("div", filters(report), flows(report), length(report))
    body = el("div", told, counted, class_="columns")
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


def filters(report: Mapping[str, Any]) -> Html | None:
    """In, kept and dropped by each filter in turn, summed over the shards."""
    shards = report.get("shards", [])
    if not shards:
        return None
    rows: list[list[Child]] = []
    for name in shards[0]:
        flow = [sum(shard[name][part] for shard in shards) for part in ("rows_in", "dropped")]
        worst = max(_share(shard[name]) for shard in shards)
        cells = (short(flow[0]), short(flow[0] - flow[1]), short(flow[1]), percent(worst))
        rows.append([name.replace("_", " "), *cells])
    label = f"filter, over {len(shards)} shard{'s' * (len(shards) > 1)}"
    head = [label, "rows in", "kept", "dropped", "most in a shard"]
    return table(head, rows, numeric=(1, 2, 3, 4))


def _share(flow: Mapping[str, int]) -> float:
    return flow["dropped"] / flow["rows_in"] if flow["rows_in"] else 0.0


def length(report: Mapping[str, Any]) -> Html | None:
    """Whether the better response of the kept pairs is also the longer one."""
    bias = report.get("length_bias")
    if not bias:
        return None
    more = f"{bias['characters']:+.0f}".replace("-", "\u2212")
    return el(
        "p",
        f"Of {short(bias['pairs'])} kept pairs the chosen response is the longer one in"
        f" {percent(bias['chosen_longer'])} (ties count one half; 50% is no bias), by {more}"
        " characters on average.",
    )


def suites(report: Mapping[str, Any]) -> Html | None:
    """What training rows were checked against, and which suites of `all` could not be had."""
    rows: list[list[Child]] = [
        [
            name.replace("_", " "),
            short(found.get("items")),
            short(found.get("dropped")),
            el("code", str(found.get("version"))[:12]),
        ]
        for name, found in report.get("suites", {}).items()
    ]
    absent = ", ".join(report.get("absent", {}))
    if not rows:
        return el("p", "Training rows were checked against no suite.", class_="absent")
    head = ["training rows checked against", "items", "rows dropped", "version"]
    missing = f"Not checked, for their items could not be had: {absent}." if absent else ""
    return join(table(head, rows, numeric=(1, 2)), el("p", missing) if missing else None)


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
