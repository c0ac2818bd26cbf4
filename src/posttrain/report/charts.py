"""Charts as inline SVG. Colours are classes (`page.css` knows both themes); every chart has a
title, a description and, beside it on the page, a table with the same numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from posttrain.report.facts import Estimate
from posttrain.report.layout import Scale, spread, ticks
from posttrain.report.markup import Child, Html, el, join, num, percent, points, short


def svg(
    key: str, width: float, height: float, title: str, desc: str, *children: Child, **more: str
) -> Html:
    """A drawing that a screen reader can tell: `key` must be unique on the page."""
    return el(
        "svg",
        el("title", title, id=f"{key}-title"),
        el("desc", desc, id=f"{key}-desc"),
        *children,
        view_box=f"0 0 {num(width)} {num(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        **more,
    )


def text(x: float, y: float, content: str, class_: str = "", anchor: str = "start") -> Html:
    """A label."""
    return el("text", content, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(
    pairs: Sequence[tuple[float, float]],
    class_: str,
    *,
    close: bool = False,
    tip: Html | None = None,
) -> Html:
    """A line through points."""
    d = "M" + "L".join(f"{num(x)} {num(y)}" for x, y in pairs) + ("Z" if close else "")
    return el("path", tip, d=d, class_=class_)


def dot(x: float, y: float, shape: str, class_: str, tip: str = "", r: float = 4) -> Html:
    """A mark that differs by shape as well as by colour; `tip` shows under the pointer."""
    inner = el("title", tip) if tip else None
    if shape == "square":
        side = 1.8 * r
        return el(
            "rect", inner, x=x - side / 2, y=y - side / 2, width=side, height=side, class_=class_
        )
    if shape == "diamond":
        k = 1.3 * r
        corners = [(x, y - k), (x + k, y), (x, y + k), (x - k, y)]
        return path(corners, class_, close=True, tip=inner)
    return el("circle", inner, cx=x, cy=y, r=r, class_=class_)


class Step(NamedTuple):
    """A row of the ladder: a policy, its share, and its gain over the one above it."""

    name: str
    found: Estimate
    gain: Estimate | None


def ladder(steps: Sequence[Step], suite: str) -> Html:
    """pass@1 with 95% intervals, one row a policy, from the base down to the last."""
    left, right, row, top = 116.0, 660.0, 42.0, 26.0
    bottom = top + row * len(steps)
    x = Scale(0, 1, left, right)
    parts: list[Child] = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            line(x(tick), top, x(tick), bottom, "grid"),
            text(x(tick), bottom + 16, percent(tick, 0), "tick", "middle"),
        ]
    place = [
        (x(s.found.value), top + row * (i + 0.5))
        for i, s in enumerate(steps)
        if math.isfinite(s.found.value)
    ]
    heads = [(24, "pass@1"), (88, "95% interval"), (212, "gain"), (264, "95% interval, paired")]
    parts += [text(right + at, 12, head, "tick") for at, head in heads]
    parts.append(path(place, "thread") if len(place) > 1 else None)
    for i, step in enumerate(steps):
        parts += _ladder_row(step, x, top + row * (i + 0.5), last=i == len(steps) - 1)
    told = "; ".join(f"{s.name} {percent(s.found.value)}" for s in steps)
    return svg("ladder", 1096, bottom + 24, f"pass@1 on {suite} by policy", told, *parts)


def _ladder_row(step: Step, x: Scale, y: float, *, last: bool) -> list[Child]:
    found, gain = step.found, step.gain
    row: list[Child] = [text(x.start - 14, y + 4, step.name, "name", "end")]
    if not math.isfinite(found.value):
        return [*row, text(x.start + 8, y + 4, "NaN", "value")]
    tip = f"{step.name}: {percent(found.value)} [{percent(found.low)}, {percent(found.high)}]"
    if math.isfinite(found.low) and math.isfinite(found.high):
        row.append(line(x(found.low), y, x(found.high), y, "whisker s1"))
    row.append(dot(x(found.value), y, "circle", "mark s1" if last else "mark hollow s1", tip, 6))
    row.append(text(x.end + 24, y + 4, percent(found.value), "value"))
    row.append(text(x.end + 88, y + 4, f"{100 * found.low:.1f} – {100 * found.high:.1f}", "soft"))
    if gain and math.isfinite(gain.value):
        row.append(text(x.end + 212, y + 4, points(gain.value), "value"))
        interval = f"{points(gain.low)} to {points(gain.high)}"
        row.append(text(x.end + 264, y + 4, interval, "soft"))
    return row


def small_curve(key: str, title: str, steps: Sequence[int], values: Sequence[float | None]) -> Html:
    """One learning curve; gaps where a value is no number."""
    width, height, left, right, top, bottom = 264.0, 128.0, 44.0, 256.0, 8.0, 106.0
    finite = [v for v in values if v is not None]
    if not finite:
        return svg(
            key, width, height, title, "no finite value", text(left, 60, "no finite value", "soft")
        )
    low, high = min(finite), max(finite)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    y = Scale(low - pad, high + pad, bottom, top)
    x = Scale(steps[0], steps[-1], left, right)
    parts: list[Child] = []
    for tick in ticks(low - pad, high + pad, 4):
        parts += [
            line(left, y(tick), right, y(tick), "grid"),
            text(left - 6, y(tick) + 3.5, short(tick), "tick", "end"),
        ]
    for step, anchor in dict.fromkeys([(steps[0], "start"), (steps[-1], "end")]):
        parts.append(text(x(step), height - 6, short(step), "tick", anchor))
    smooth = smoothed(values) if len(finite) >= 24 else None
    for run in _runs(steps, values):
        pairs = [(x(s), y(v)) for s, v in run]
        if len(pairs) == 1:
            parts.append(dot(*pairs[0], "circle", "mark s1", r=2.5))
        else:
            parts.append(path(pairs, "raw s1" if smooth else "curve s1"))
    if smooth:
        parts += [path([(x(s), y(v)) for s, v in run], "curve s1") for run in _runs(steps, smooth)]
    holes = len(values) - len(finite)
    desc = (
        f"{len(finite)} points from step {steps[0]} to {steps[-1]}; first {short(finite[0])}, last"
        f" {short(finite[-1])}, lowest {short(low)}, highest {short(high)}"
        + (f"; {holes} not a finite number" if holes else "")
    )
    return svg(key, width, height, title, desc, *parts)


def smoothed(values: Sequence[float | None]) -> list[float | None]:
    """A centred mean over about a twelfth of the points."""
    half = max(2, len(values) // 24)
    means: list[float | None] = []
    for i, value in enumerate(values):
        near = [v for v in values[max(0, i - half) : i + half + 1] if v is not None]
        means.append(None if value is None else sum(near) / len(near))
    return means


def _runs(steps: Sequence[int], values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for step, value in zip(steps, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((step, value))
    return [run for run in runs if run]


class Series(NamedTuple):
    """A line with its interval band: estimates by N, a mark shape and a colour class."""

    name: str
    by_n: dict[int, Estimate]
    shape: str
    colour: str


def bands(key: str, title: str, series: Sequence[Series]) -> Html:
    """Shares against N on a doubling axis, with interval bands and labels at the line's end."""
    width, height, left, right, top, bottom = 860.0, 340.0, 48.0, 680.0, 14.0, 296.0
    ns = sorted({n for s in series for n in s.by_n})
    values = [
        v
        for s in series
        for e in s.by_n.values()
        for v in (e.low, e.high, e.value)
        if math.isfinite(v)
    ]
    low, high = max(0.0, min(values) - 0.03), min(1.0, max(values) + 0.03)
    x = Scale(math.log2(ns[0]), math.log2(ns[-1]), left + 8, right)
    y = Scale(low, high, bottom, top)
    parts: list[Child] = []
    for tick in ticks(low, high, 5):
        parts += [
            line(left, y(tick), right, y(tick), "grid"),
            text(left - 8, y(tick) + 4, percent(tick, 0), "tick", "end"),
        ]
    parts += [text(x(math.log2(n)), bottom + 20, str(n), "tick", "middle") for n in ns]
    parts.append(text((left + right) / 2, height - 6, "N, samples per item", "soft", "middle"))
    for s in series:
        at = [(x(math.log2(n)), e) for n, e in sorted(s.by_n.items()) if math.isfinite(e.value)]
        both = [(px, e) for px, e in at if math.isfinite(e.low) and math.isfinite(e.high)]
        edge = [(px, y(e.high)) for px, e in both] + [(px, y(e.low)) for px, e in reversed(both)]
        parts.append(path(edge, f"band {s.colour}", close=True) if len(both) > 1 else None)
    ends = []
    for s in series:
        at = [(n, e) for n, e in sorted(s.by_n.items()) if math.isfinite(e.value)]
        pairs = [(x(math.log2(n)), y(e.value)) for n, e in at]
        parts.append(path(pairs, f"curve {s.colour}") if len(pairs) > 1 else None)
        for (px, py), (n, e) in zip(pairs, at, strict=True):
            tip = f"{s.name}, N={n}: {percent(e.value)} [{percent(e.low)}, {percent(e.high)}]"
            parts.append(dot(px, py, s.shape, f"mark {s.colour}", tip))
        if pairs:
            ends.append((pairs[-1][1], s, at[-1][1]))
    ends.sort(key=lambda end: end[0])
    for label_y, (_, s, e) in zip(
        spread([end[0] for end in ends], [20.0] * len(ends)), ends, strict=True
    ):
        parts.append(dot(right + 20, label_y, s.shape, f"mark {s.colour}"))
        parts.append(text(right + 32, label_y + 4, f"{s.name} {percent(e.value)}", "name"))
    desc = "; ".join(f"{s.name} ends at {percent(e.value)}" for _, s, e in ends)
    return svg(key, width, height, title, desc, *parts)


class Bin(NamedTuple):
    """A bin of predictions: mean confidence, share that was right, how many."""

    confidence: float
    accuracy: float
    size: int


def reliability(key: str, title: str, bins: Sequence[Bin], unit: str) -> Html:
    """Confidence against accuracy with the diagonal, and the counts below as bars."""
    left, right, top, bottom = 48.0, 368.0, 12.0, 292.0
    floor, height = 356.0, 392.0
    low = min(0.5, *(b.confidence for b in bins)) if bins else 0.0
    low = 0.5 if low >= 0.5 else 0.0
    base = min(low, *(math.floor(4 * b.accuracy) / 4 for b in bins)) if bins else 0.0
    x, y = Scale(low, 1, left, right), Scale(base, 1, bottom, top)
    parts: list[Child] = [path([(x(low), y(low)), (x(1), y(1))], "ideal")]
    for tick in ticks(base, 1, 5):
        parts += [
            line(left, y(tick), right, y(tick), "grid"),
            text(left - 8, y(tick) + 4, percent(tick, 0), "tick", "end"),
        ]
    for tick in ticks(low, 1, 5):
        parts.append(text(x(tick), floor + 16, percent(tick, 0), "tick", "middle"))
    most = max((b.size for b in bins), default=1) or 1
    at = [(b, x(b.confidence), y(b.accuracy)) for b in bins]
    parts.append(path([(px, py) for _, px, py in at], "curve s1") if len(at) > 1 else None)
    for b, px, py in at:
        tip = f"said {percent(b.confidence)}, right {percent(b.accuracy)} of {b.size} {unit}"
        tall = 40 * b.size / most
        parts.append(
            el(
                "rect",
                el("title", tip),
                x=px - 8,
                y=floor - tall,
                width=16,
                height=tall,
                class_="bar s1",
            )
        )
        parts.append(text(px, floor - tall - 4, short(b.size), "tick", "middle"))
        parts.append(dot(px, py, "circle", "mark s1", tip, 4.5))
    parts.append(line(left, floor, right, floor, "axis"))
    parts.append(
        text(
            (left + right) / 2,
            height - 4,
            "the chance the judge gives its winner",
            "soft",
            "middle",
        )
    )
    desc = "; ".join(
        f"said {percent(b.confidence, 0)}: right {percent(b.accuracy, 0)} of {b.size}" for b in bins
    )
    return svg(key, 392, height, title, desc or "no bins", *parts)


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """Colour class and name, in one line."""
    return el(
        "p",
        join(*(el("span", el("i", class_=f"swatch {c}"), name) for c, name in entries)),
        class_="legend",
    )
