"""How the numbers of each training went, step by step."""

import re

from posttrain.report.charts import small_curve
from posttrain.report.facts import Curve, Facts
from posttrain.report.markup import Child, Html, el, folded, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

FIRST = (
    r"loss|train/loss",
    r"(eval/|eval_|held_out_?/?)loss",
    r"(.*[/_])?accuracy",
    r"margin",
    r"reward/mean",
    r"pass_rate|reward/correct",
    r"kept_groups",
    r"entropy",
    r"response/length",
    r"(loss/)?kl",
)
"""The curves shown at once, in this order; the others stand behind a line that opens them."""
SHOWN = 8


def draw(facts: Facts, times: Times | None) -> Section:
    """Small multiples, task by task."""
    tasks = list(dict.fromkeys(curve.task for curve in facts.curves))
    if not tasks:
        return absent("Learning curves", "No artifact of this run holds learning curves.")
    lead = "One panel a metric; pale is each step, dark a running mean. Scales differ."
    groups = [group(task, [c for c in facts.curves if c.task == task]) for task in tasks]
    return Section("Learning curves", lead, el("div", groups, class_="groups"))


def group(task: str, curves: list[Curve]) -> Html:
    """The panels of one task: the well-known metrics first."""
    curves = sorted(curves, key=lambda c: (rank(c.name), c.name))
    known = [c for c in curves if rank(c.name) < len(FIRST)][:SHOWN] or curves[:4]
    others = [c for c in curves if c not in known]
    head = ["metric", "points", "first", "last", "lowest", "highest", "not finite"]
    rows: list[list[Child]] = [[c.name, *numbers(c)] for c in curves]
    return el(
        "div",
        el("h3", task),
        el("div", [panel(c) for c in known], class_="panels"),
        folded(f"{len(others)} more", el("div", [panel(c) for c in others], class_="panels"))
        if others
        else None,
        folded("As a table", table(head, rows, numeric=range(1, 7))),
        class_="group",
    )


def rank(name: str) -> int:
    """The place of a metric among the well-known; the others come last."""
    return next((i for i, known in enumerate(FIRST) if re.fullmatch(known, name)), len(FIRST))


def panel(curve: Curve) -> Html:
    """One metric with its last value."""
    last = next((v for v in reversed(curve.values) if v is not None), None)
    key = "curve-" + re.sub(r"[^a-zA-Z0-9]+", "-", f"{curve.task}-{curve.name}")
    caption = el(
        "figcaption", el("span", curve.name), el("b", "NaN" if last is None else short(last))
    )
    drawn = small_curve(key, f"{curve.name} of {curve.task}", curve.steps, curve.values)
    return el("figure", caption, drawn, class_="panel")


def numbers(curve: Curve) -> list[str]:
    """Count, first, last, lowest and highest of the finite values, and how many are not."""
    finite = [v for v in curve.values if v is not None]
    spread = [finite[0], finite[-1], min(finite), max(finite)] if finite else [None] * 4
    shown = ["NaN" if v is None else short(v) for v in spread]
    return [str(len(curve.values)), *shown, str(len(curve.values) - len(finite))]
