"""The verdict of a run on one terminal screen: at most 24 lines of 80 columns."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.report.compare import ladder_order
from posttrain.report.facts import Estimate
from posttrain.report.markup import duration
from posttrain.report.summary import CurvePoint, Summary, finite

WIDTH = 80
LINES = 24
LABEL = 14
BAR = 20


def verdict_screen(summary: Mapping[str, Any]) -> str:
    """The ladder, the judge, best-of-N, the other suites, the gate, the time and the report."""
    return "\n".join(screen_lines(Summary.model_validate(summary))) + "\n"


def screen_lines(summary: Summary) -> list[str]:
    """The screen, line by line."""
    metrics = summary.metrics
    lines = [
        *ladder_lines(summary),
        "",
        labelled("reward model", judge_text(summary)),
        *curve_lines(metrics.best_of_n),
        *suite_lines(summary),
        *gate_lines(summary),
        *time_lines(summary),
    ]
    if summary.report:
        lines.append(labelled("report", summary.report))
    return lines


def labelled(label: str, text: str) -> str:
    """One line: the label in its column, then the text, cut at the screen's edge."""
    room = WIDTH - LABEL
    text = text if len(text) <= room else text[: room - 1] + "…"
    return f"{label:<{LABEL}}{text}".rstrip()


def share(value: float | None) -> str:
    """A share in percent, five columns wide."""
    return f"{100 * value:5.1f}" if value is not None and finite(value) else "  n/a"


def ladder_lines(summary: Summary) -> Iterator[str]:
    """pass@1 of each policy with its interval, a bar, and the step from the one before."""
    metrics = summary.metrics
    sizes = sorted({e.n for e in metrics.pass_at_1.values()})
    items = f", {'–'.join(map(str, sizes[:1] + sizes[1:][-1:]))} held-out items" if sizes else ""
    yield f"pass@1 in % on {metrics.suite or 'no suite'}{items}, 95% intervals"[:WIDTH]
    if not sizes:
        yield labelled("", "no benchmark scores among the inputs")
    gains = {name.split("_over_")[0]: gain for name, gain in metrics.gains.items()}
    for policy in ladder_order(metrics.pass_at_1):
        found = metrics.pass_at_1[policy]
        filled = round(BAR * found.value) if finite(found.value) else 0
        bar = "█" * filled + "·" * (BAR - filled)
        text = f"{share(found.value)}  [{share(found.low)},{share(found.high)}]  {bar}"
        yield labelled(f"  {policy}", text + gain_text(gains.get(policy)))


def gain_text(gain: Estimate | None) -> str:
    """`+10.7 [+7.9, +13.5]`, or nothing."""
    if gain is None or not finite(gain.value):
        return ""
    low, high = (f"{100 * v:+.1f}" if finite(v) else "n/a" for v in (gain.low, gain.high))
    return f"  {100 * gain.value:+.1f} [{low}, {high}]"


def judge_text(summary: Summary) -> str:
    found = summary.metrics.reward_model
    if found is None:
        return "no judge in this run"
    return (
        f"{share(found.value).strip()}% of {found.n} held-out pairs ranked right"
        f" [{share(found.low).strip()}, {share(found.high).strip()}]"
    )


def curve_lines(curve: list[CurvePoint]) -> Iterator[str]:
    """Best-of-N as a table: a column for each N, at most eight of them."""
    if not curve:
        yield labelled("best of N", "not in this run")
        return
    shown = curve if len(curve) <= 8 else [*curve[:7], curve[-1]]
    yield labelled("best of N", "N      " + "".join(f"{p.n:>7}" for p in shown))
    for name, key in (("pass@N", "pass_at_n"), ("majority", "majority"), ("judge", "judge")):
        values = [getattr(point, key) for point in shown]
        if any(values):
            cells = "".join(f"{share(v.value if v else None):>7}" for v in values)
            yield labelled("", f"{name:<8}{cells[1:]}")


def suite_lines(summary: Summary) -> Iterator[str]:
    """The other suites, first policy to last."""
    metrics = summary.metrics
    order = ladder_order(metrics.pass_at_1.keys() & metrics.suites.keys())
    if not order:
        return
    first, last = metrics.suites[order[0]], metrics.suites[order[-1]]
    parts = [
        f"{suite} {share(first[suite].value).strip()} → {share(last[suite].value).strip()}"
        for suite in last
        if suite != metrics.suite and suite in first
    ]
    lines = textwrap.wrap(" · ".join(parts), WIDTH - LABEL)[:3]
    for i, line in enumerate(lines):
        yield labelled("" if i else "other suites", line)


def gate_lines(summary: Summary) -> Iterator[str]:
    """The verdict and why, in two lines at most."""
    gate = summary.metrics.gate
    verdict = str(gate.get("verdict", "not in this run")).upper() if gate else "not in this run"
    reason = gate.get("reason") or gate.get("reasons") or ""
    text = "; ".join(map(str, reason)) if isinstance(reason, list) else str(reason)
    lines = textwrap.wrap(
        f"{verdict}  {text}".strip(), WIDTH - LABEL, max_lines=2, placeholder=" …"
    )
    for i, line in enumerate(lines):
        yield labelled("" if i else "gate", line)


def time_lines(summary: Summary) -> Iterator[str]:
    """Wall time, what orchestration took, how much was cached, and the slowest stages."""
    if summary.wall_seconds is None:
        return
    timed = {task: t for task, t in summary.stages.items() if t.seconds is not None}
    cached = sum(bool(t.cached) for t in timed.values())
    yield labelled(
        "time",
        f"{duration(summary.wall_seconds)}, of which orchestration"
        f" {duration(summary.overhead_seconds)}"
        + (f"; {cached} of {len(timed)} stages cached" if cached else ""),
    )
    slowest = sorted(timed, key=lambda task: (-(timed[task].seconds or 0.0), task))[:4]
    parts = [f"{t} {duration(timed[t].seconds)}" for t in slowest if timed[t].seconds]
    if parts:
        yield labelled("", "slowest: " + ", ".join(parts))
