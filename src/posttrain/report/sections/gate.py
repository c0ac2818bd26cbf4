"""Why the gate said what it said."""

import re
from collections.abc import Mapping
from typing import Any

from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, el, join, percent, points, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.sections.nights import panels
from posttrain.report.sections.verdict import word
from posttrain.report.times import Times

DIGEST = re.compile(r"[0-9a-f]{40,}")


def draw(facts: Facts, times: Times | None) -> Section:
    """Comparisons per suite, the rule and who was compared with whom, and the nights before."""
    if not facts.verdict and not facts.nights:
        return absent("Gate", "No verdict among the inputs.")
    lead = (
        "Challenger minus champion on the same items; p-values are those of random sign flips, item"
        " by item (by prompt where items share one), adjusted for the number of suites (Holm)."
        " Detectable: the smallest true loss that fails four times in five."
    )
    told = [comparisons(facts.verdict), details(facts.verdict)] if facts.verdict else []
    body = join(word(facts), told, panels(facts.nights))
    return Section("Gate", lead, body)


def comparisons(verdict: Mapping[str, Any]) -> Html:
    """One row a suite."""
    head = [
        "suite",
        "items",
        "challenger",
        "champion",
        "difference",
        "95% interval",
        "p",
        "p, Holm",
        "detectable",
    ]
    given = verdict.get("suites", [])
    found = given if isinstance(given, list) else [{"suite": k, **v} for k, v in given.items()]
    primary = verdict.get("primary", [])
    rows: list[list[Child]] = []
    for c in found:
        name = str(c.get("suite"))
        label = join(name, el("small", " decides") if name in primary else None)
        rows.append(
            [
                label,
                short(c.get("n")),
                percent(c.get("challenger")),
                percent(c.get("champion")),
                points(c.get("difference")),
                f"{points(c.get('low'))} to {points(c.get('high'))}",
                short(c.get("p")),
                short(c.get("p_holm")),
                points(c.get("detectable")).lstrip("+"),
            ]
        )
    if not rows:
        return el("p", "No suite could be compared.", class_="absent")
    return table(head, rows, numeric=range(1, 9))


def details(verdict: Mapping[str, Any]) -> Html:
    """The rest of the verdict, key by key."""
    shown = ("suites", "verdict", "reasons", "reason")
    flat: dict[str, Any] = {}
    for key, value in verdict.items():
        if isinstance(value, Mapping):
            flat |= {f"{key} {inner}": v for inner, v in value.items()}
        elif key not in shown:
            flat[key] = value
    lines = [join(el("dt", k.replace("_", " ")), el("dd", detail(v))) for k, v in flat.items()]
    return el("dl", lines, class_="facts")


def detail(value: Any) -> Child:
    """A value; digests in short."""
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return el("code", value[:12], title=value)
    return short(value)
