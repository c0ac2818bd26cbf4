"""What the run took: seconds, tokens and, if a price is known, money."""

from posttrain.report.facts import Facts
from posttrain.report.markup import Child, Html, duration, el, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times


def draw(facts: Facts, times: Times | None) -> Section:
    """One row a task and a sum."""
    if not times and not facts.tokens:
        return absent("Cost", "No times here (see the run folder) and no token counts.")
    lead = "Tokens are those trained on, or generated where a task has samples."
    lead += "" if times else " Seconds and price: see the page in the run folder."
    if times and facts.usd_per_hour:
        lead += f" At {facts.usd_per_hour:.2f} USD an hour, orchestration included."
    tasks = list(
        dict.fromkeys([*facts.tasks(), *(s.task for s in times.spans)] if times else facts.tasks())
    )
    head = ["task", "tokens", *(["work", "orchestration"] if times else [])]
    priced = bool(times and facts.usd_per_hour)
    head += ["USD"] if priced else []
    rows = [cells(task, facts, times) for task in tasks]
    if times:
        rows.append(total(facts, times))
    return Section("Cost", lead, table(head, rows, numeric=range(1, len(head))))


def cells(task: str, facts: Facts, times: Times | None) -> list[Child]:
    """The row of a task."""
    tokens = facts.tokens.get(task)
    row: list[Child] = [task, short(tokens) if tokens is not None else ""]
    if times:
        span = times.span(task)
        row += [duration(span.seconds), duration(span.overhead_seconds)] if span else ["", ""]
        if facts.usd_per_hour:
            row.append(price(span.seconds + (span.overhead_seconds or 0.0), facts) if span else "")
    return row


def total(facts: Facts, times: Times) -> list[Child]:
    """The sum over tasks; orchestration includes the start and the end of the run."""
    work = sum(s.seconds for s in times.spans)
    row: list[Child] = [
        bold("the run"),
        bold(short(sum(facts.tokens.values()))),
        bold(duration(work)),
        bold(duration(times.overhead_seconds)),
    ]
    if facts.usd_per_hour:
        row.append(bold(price(work + (times.overhead_seconds or 0.0), facts)))
    return row


def bold(text: str) -> Html:
    return el("b", text)


def price(seconds: float, facts: Facts) -> str:
    """Dollars to a hundredth of a cent."""
    return f"{seconds / 3600 * facts.usd_per_hour:.4f}"
