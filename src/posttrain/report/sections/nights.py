"""How a gate's nights went: the score of each suite, verdicts, and who was champion."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from posttrain.gate.nights import Night
from posttrain.report.charts import dot, line, path, svg, text
from posttrain.report.layout import Scale, ticks
from posttrain.report.markup import Child, Html, el, folded, join, percent, table

MARKS = {
    "pass": ("circle", "mark s1"),
    "fail": ("diamond", "mark s3"),
    "investigate": ("square", "mark hollow s1"),
}
DATES = 6
"""Dates below an axis, about."""


def panels(nights: Sequence[Night]) -> Html | None:
    """A panel a suite and the nights as a table; nothing where no night is known."""
    if not nights:
        return None
    lead = (
        "Score of the judged policy night by night with its 95% interval. A circle is a night that"
        " passed, a square one to investigate, a diamond one that failed; an upright line stands"
        " where another policy became champion. Scales differ."
    )
    suites = sorted({suite for night in nights for suite in night.scores})
    drawn = [el("figure", panel(f"night-{i}", name, nights)) for i, name in enumerate(suites)]
    return join(
        el("h3", "Nights"),
        el("p", lead, class_="lead"),
        el("div", drawn, class_="scroll"),
        folded("As a table", listed(nights, suites)),
    )


def changes(nights: Sequence[Night]) -> list[int]:
    """The nights after which another policy was champion than after the night before."""
    first = [0] if nights[0].promoted else []
    later = enumerate(pairwise(nights), 1)
    return first + [i for i, (before, now) in later if before.champion != now.champion]


def panel(key: str, suite: str, nights: Sequence[Night]) -> Html:
    """One suite; a night that lacks it leaves a gap in the line."""
    width, left, right, top, bottom = 860.0, 48.0, 844.0, 22.0, 142.0
    levels = [night.scores.get(suite) for night in nights]
    known = [level for level in levels if level]
    low, high = min(each.low for each in known), max(each.high for each in known)
    x = Scale(0, max(1, len(nights) - 1), left + 12, right - 12)
    y = Scale(max(0.0, low - 0.02), min(1.0, high + 0.02), bottom, top)
    parts: list[Child] = [text(left, 12, suite, "name")]
    for tick in ticks(y.low, y.high, 4):
        parts += [
            line(left, y(tick), right, y(tick), "grid"),
            text(left - 8, y(tick) + 4, percent(tick, 0), "tick", "end"),
        ]
    stride = max(1, len(nights) // DATES)
    for i in range(0, len(nights), stride):
        parts.append(text(x(i), bottom + 18, date(nights[i])[5:], "tick", "middle"))
    for i in changes(nights):
        parts.append(line(x(i), top, x(i), bottom, "axis"))
        parts.append(text(x(i) + 4, top + 6, nights[i].champion[:6], "tick"))
    for i, (before, now) in enumerate(pairwise(levels), 1):
        if before and now:
            ends = [(x(i - 1), y(before.value)), (x(i), y(now.value))]
            parts.append(path(ends, "thread"))
    for i, (night, level) in enumerate(zip(nights, levels, strict=True)):
        if level:
            shape, look = MARKS[night.verdict]
            parts.append(line(x(i), y(level.low), x(i), y(level.high), f"whisker {look[-2:]}"))
            parts.append(dot(x(i), y(level.value), shape, look, told(night, suite), 5))
    last = f"{suite}: {len(known)} nights, {percent(known[-1].value)} on the last"
    return svg(key, width, bottom + 26, f"{suite} by night", last, *parts)


def told(night: Night, suite: str) -> str:
    """What stands under the pointer."""
    level = night.scores[suite]
    interval = f"[{percent(level.low)}, {percent(level.high)}]"
    promoted = ", promoted" if night.promoted else ""
    return f"{date(night)}, {night.verdict}{promoted}: {percent(level.value)} {interval}"


def listed(nights: Sequence[Night], suites: Sequence[str]) -> Html:
    """The numbers of the panels."""
    head = ["night", "verdict", "policy", "champion after it", *suites]
    rows: list[list[Child]] = [
        [
            date(night),
            night.verdict + (", promoted" if night.promoted else ""),
            el("code", night.policy[:12]),
            el("code", night.champion[:12]),
            *(percent(night.scores[s].value) if s in night.scores else "" for s in suites),
        ]
        for night in nights
    ]
    return table(head, rows, numeric=range(4, len(head)))


def date(night: Night) -> str:
    """Day and minute, UTC."""
    return datetime.fromtimestamp(night.ended, UTC).strftime("%Y-%m-%d %H:%M")
