"""What the run took: seconds of work, of accelerators and of cores, tokens and, priced, money."""

from collections.abc import Mapping

from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, duration, el, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Span, Times

HELD = {"accelerator_seconds": "accelerators", "core_seconds": "cores", "saved_seconds": "saved"}


def draw(facts: Facts, times: Times | None) -> Section:
    """One row a task and a sum."""
    if not times and not facts.tokens:
        return absent("Cost", "No times here (see the run folder) and no token counts.")
    spans = times.spans if times else []
    lead = "Tokens are those trained on, or generated where a task has samples."
    lead += "" if times else " Seconds and price: see the page in the run folder."
    tasks = list(dict.fromkeys([*facts.tasks(), *(s.task for s in spans)]))
    accounted = any(span.cost for span in spans)
    priced = any("money" in span.cost for span in spans)
    if accounted:
        lead += " Accelerators and cores are held, used or not, by every attempt, those that"
        lead += " failed included; the store saved what it gave back."
    head = ["task", "tokens", *(["work", "orchestration"] if times else [])]
    head += [*(HELD.values() if accounted else ()), *(["price"] if priced else ())]
    rows = [cells(task, facts, times, accounted=accounted, priced=priced) for task in tasks]
    if times:
        rows.append(total(facts, times, accounted=accounted, priced=priced))
    if priced:
        lead += per_point(facts, summed(spans)["money"])
    return Section("Cost", lead, table(head, rows, numeric=range(1, len(head))))


def cells(
    task: str, facts: Facts, times: Times | None, *, accounted: bool, priced: bool
) -> list[Child]:
    """The row of a task."""
    tokens = facts.tokens.get(task)
    row: list[Child] = [task, short(tokens) if tokens is not None else ""]
    if times:
        span = times.span(task)
        row += [duration(span.seconds), duration(span.overhead_seconds)] if span else ["", ""]
        row += account(span.cost if span else {}, accounted=accounted, priced=priced)
    return row


def total(facts: Facts, times: Times, *, accounted: bool, priced: bool) -> list[Child]:
    """The sum over tasks; orchestration includes the start and the end of the run."""
    found = [
        short(sum(facts.tokens.values())),
        duration(sum(s.seconds for s in times.spans)),
        duration(times.overhead_seconds),
        *account(summed(times.spans), accounted=accounted, priced=priced),
    ]
    return [bold(text) for text in ("the run", *found)]


def account(cost: Mapping[str, float], *, accounted: bool, priced: bool) -> list[str]:
    """What was held, and its price to a hundredth of a cent."""
    held = [duration(cost[name]) if name in cost else "" for name in HELD] if accounted else []
    return held + ([f"{cost['money']:.4f}" if "money" in cost else ""] if priced else [])


def summed(spans: list[Span]) -> dict[str, float]:
    """The accounts of all tasks."""
    names = {name for span in spans for name in span.cost}
    return {name: sum(span.cost.get(name, 0.0) for span in spans) for name in names}


def per_point(facts: Facts, money: float) -> str:
    """The price of a point of pass@1, from the first policy of the ladder to the last."""
    ladder = list(facts.ladder.items())
    points = 100 * (ladder[-1][1].value - ladder[0][1].value) if ladder else 0.0
    if points <= 0:
        return ""
    return f" A point of pass@1 ({points:.1f} gained) cost {money / points:.4f}."


def bold(text: str) -> Html:
    return el("b", text)
