"""Whether the reward model may be believed: its panel and how well its confidence is calibrated."""

from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.report.charts import Bin, reliability
from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, el, folded, percent, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

SHARES = (
    "accuracy",
    "confidence",
    "ece",
    "longer_wins",
    "length_balanced",
    "low",
    "high",
    "flips",
    "first_wins",
)


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
    told = el("div", word(panel), used(facts), numbers(panel), asked(facts), slices(panel))
    body = el(
        "div", el("div", figure, told, class_="columns"), overoptimisation(panel), sets(panel)
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


def used(facts: Facts) -> Html | None:
    """The tasks that were told to use a judge whose panel failed."""
    tasks = dict.fromkeys(
        a.task for a in facts.artifacts if (a.report or {}).get("judge_panel") == "failed"
    )
    if not tasks:
        return None
    return el("p", el("b", "✕ "), f"Used all the same, as told to, by: {', '.join(tasks)}.")


def asked(facts: Facts) -> Html | None:
    """What the judge's kind counted, such as what it was asked and how much of it was no score."""
    reports = [a.report or {} for a in facts.artifacts]
    found = next((r["numbers"] for r in reports if "panel" in r and r.get("numbers")), None)
    if not isinstance(found, Mapping):
        return None
    rows: list[list[Child]] = [
        [name.replace("_", " "), percent(n) if name.endswith("share") else short(n)]
        for name, n in sorted(found.items())
        if isinstance(n, int | float)
    ]
    return table(["kind's own", "count"], rows, numeric=(1,)) if rows else None


BOUNDS = {
    "held_out accuracy": ("min_accuracy", "≥"),
    "ece": ("max_ece", "≤"),
    "length_balanced": ("min_length_balanced", "≥"),
    "length_correlation": ("max_length_correlation", "surely ≤"),
    "swap flips": ("max_order_flips", "≤"),
    "invariance bos flips": ("max_bos_flips", "≤"),
}
"""Number of the panel -> the threshold it must keep, and on which side."""


def numbers(panel: Mapping[str, Any]) -> Html:
    """Every scalar of the panel, flattened; those with a threshold first."""
    skip = ("passed", "reasons", "reliability", "slices", "thresholds", "sets", "overoptimisation")
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


def overoptimisation(panel: Mapping[str, Any]) -> Html | None:
    """What choosing harder by the judge does to right answers, and where it does harm."""
    found = panel.get("overoptimisation")
    if not found:
        return None
    lead = el(
        "p",
        f"Over-optimisation: the best of n by the judge, from {found['samples']} candidates of each"
        f" of {found['prompts']} prompts of {found['suite']}, at most log n \u2212 (n \u2212 1)/n"
        " nats from the policy.",
        " The score rises with n by itself; what is right should not fall.",
        f" {found['unscored']} candidates had no score." if found["unscored"] else "",
    )
    head = ["n", "nats from the policy", "judge's score", "right", "95% interval", "surely below"]
    rows: list[list[Child]] = [
        [
            str(p["n"]),
            short(p["kl"]),
            short(p["judge"]),
            percent(p["gold"]),
            f"{percent(p['low'])} – {percent(p['high'])}",
            "✕ n = " + ", ".join(map(str, p["below"])) if p["below"] else "",
        ]
        for p in found["points"]
    ]
    return el("div", lead, table(head, rows, numeric=range(5)))


def sets(panel: Mapping[str, Any]) -> Html | None:
    """The public sets: one line each, and folded the rest of their numbers."""
    found: Mapping[str, Any] = panel.get("sets", {})
    if not found:
        return None
    head = ["set", "items", "measure", "value", "pairs right, 95%", "required"]
    rows: list[list[Child]] = [set_row(one) for one in found.values()]
    parts = [
        folded(f"{one['source']}: all numbers", matrix(one), measures(one), slices(one))
        for one in found.values()
    ]
    lead = el("p", "Public sets; a tie is lost, and so is an answer that is no number.")
    return el("div", lead, table(head, rows, numeric=(1, 3, 4, 5)), *parts)


def set_row(one: Mapping[str, Any]) -> list[Child]:
    """A set in one line; a threshold with a mark where it was missed."""
    share = one["overall"]
    required = "" if one["min_score"] is None else f"≥ {short(one['min_score'])}"
    lost = f" ({one['unscored']} unscored)" if one["unscored"] else ""
    return [
        one["source"],
        f"{one['items']}{lost}",
        one["headline"].replace("_", " "),
        short(one["scores"].get(one["headline"])),
        f"{percent(share['accuracy'])} ({percent(share['low'])} – {percent(share['high'])})",
        required if one["passed"] else f"✕ {required}",
    ]


def measures(one: Mapping[str, Any]) -> Html:
    """Every number of a set."""
    rows: list[list[Child]] = [
        [name.replace("_", " "), short(value)] for name, value in one["scores"].items()
    ]
    return table(["measure", "value"], rows, numeric=(1,))


def matrix(one: Mapping[str, Any]) -> Html | None:
    """RM-Bench's style matrix: right responses down, wrong ones across."""
    if not one.get("matrix"):
        return None
    names = ("concise", "detailed", "Markdown")
    rows: list[list[Child]] = [
        [f"right: {name}", *(percent(value) for value in values)]
        for name, values in zip(names, one["matrix"], strict=True)
    ]
    return table(["style", *(f"wrong: {name}" for name in names)], rows, numeric=(1, 2, 3))
