"""Whether the reward model may be believed: its panel and how well its confidence is calibrated."""

from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.report.charts import Bin, reliability
from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, el, folded, percent, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

SHARES = ("accuracy", "confidence", "ece", "longer_wins", "low", "high", "flips")


def draw(facts: Facts, times: Times | None) -> Section:
    """Reliability diagram beside the panel, then accuracy by slice."""
    panel = facts.panel
    if not panel:
        return absent("Reward model", "No judge among the inputs.")
    lead = (
        "Measured on preference pairs that the judge never saw. On the diagonal, the judge is right"
        " as often as it says; below it, it says too much. Bars count pairs."
    )
    bins = bins_of(panel)
    head = ["confidence", "pairs", "mean confidence", "right"]
    rows: list[list[Child]] = [
        [f"bin {i + 1}", str(b.size), percent(b.confidence), percent(b.accuracy)]
        for i, b in enumerate(bins)
    ]
    figure = (
        el(
            "figure",
            reliability("reliability", "Reliability of the reward model", bins, "pairs"),
            folded("As a table", table(head, rows, numeric=(1, 2, 3))),
        )
        if bins
        else el("p", "The judge's panel holds no calibration bins.", class_="absent")
    )
    body = el(
        "div", figure, el("div", word(panel), numbers(panel), slices(panel)), class_="columns"
    )
    return Section("Reward model", lead, body)


def bins_of(panel: Mapping[str, Any]) -> list[Bin]:
    """The bins that hold at least one pair."""
    return [
        Bin(float(b["confidence"]), float(b["accuracy"]), int(b["pairs"]))
        for b in panel.get("reliability", [])
        if b.get("pairs")
    ]


def word(panel: Mapping[str, Any]) -> Html:
    """Passed or not, with reasons."""
    passed = bool(panel.get("passed"))
    reasons = "; ".join(map(str, panel.get("reasons", [])))
    told = "The panel passed: the judge may be used." if passed else f"The panel failed: {reasons}"
    return el("p", el("b", "✓ " if passed else "✕ "), told)


BOUNDS = {
    "held_out accuracy": ("min_accuracy", "≥"),
    "ece": ("max_ece", "≤"),
    "invariance bos flips": ("max_bos_flips", "≤"),
}
"""Number of the panel -> the threshold it must keep, and on which side."""


def numbers(panel: Mapping[str, Any]) -> Html:
    """Every scalar of the panel, flattened; those with a threshold first."""
    skip = ("passed", "reasons", "reliability", "slices", "thresholds")
    limits = dict(scalars(panel.get("thresholds", {})))
    rows: list[list[Child]] = []
    for name, value in scalars({k: v for k, v in panel.items() if k not in skip}):
        other = name.startswith("invariance") and "bos" not in name
        limit, sign = BOUNDS.get(name, ("tolerance", "≤") if other else ("", ""))
        last = name.split()[-1]
        bound = f"{sign} {shown(last, limits[limit])}" if limit in limits else ""
        rows.append([name.replace("_", " "), shown(last, value), bound])
    rows.sort(key=lambda row: (not row[2], str(row[0]).startswith("invariance"), row[0] == "ece"))
    return table(["panel", "value", "required"], rows, numeric=(1, 2))


def scalars(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested names joined by spaces, and their leaves."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from scalars(inner, f"{prefix}{key} ")
        elif not isinstance(inner, list):
            yield f"{prefix}{key}", inner


def shown(name: str, value: Any) -> str:
    """Shares in percent, the rest as numbers."""
    if name in SHARES and isinstance(value, int | float):
        return percent(float(value))
    return short(value)


def slices(panel: Mapping[str, Any]) -> Html | None:
    """Accuracy by source and by which answer is longer."""
    rows: list[list[Child]] = [
        [
            name,
            str(s.get("pairs", "")),
            percent(s.get("accuracy")),
            f"{percent(s.get('low'))} – {percent(s.get('high'))}",
        ]
        for name, s in panel.get("slices", {}).items()
    ]
    if not rows:
        return None
    return table(["slice", "pairs", "accuracy", "95% interval"], rows, numeric=(1, 2, 3))
