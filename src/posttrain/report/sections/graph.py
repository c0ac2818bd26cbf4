"""What ran, what fed what, and when."""

from posttrain.artifacts import JUDGE, POLICY, SCORES, VERDICT
from posttrain.report.charts import legend, line, svg, text
from posttrain.report.dag import Box, Trunk, drawing
from posttrain.report.facts import Artifact, Facts
from posttrain.report.layout import Scale, clock_ticks
from posttrain.report.markup import (
    Child,
    Html,
    clock,
    duration,
    el,
    folded,
    join,
    percent,
    short,
    table,
)
from posttrain.report.sections import Section, absent
from posttrain.report.summary import judge_accuracy
from posttrain.report.times import Span, Times

KINDS = {POLICY: "s1", JUDGE: "s2", SCORES: "s4", VERDICT: "s5"}
DATA = "s3"


def draw(facts: Facts, times: Times | None) -> Section:
    """The graph as a drawing, the time line, and both as one table."""
    if not facts.artifacts:
        return absent("Graph", "No artifacts among the inputs: there is no graph to draw.")
    depth = depths(facts)
    boxes = [
        Box(task, notes(task, facts, times), colour(first(facts, task))) for task in facts.tasks()
    ]
    lead = (
        "Every task of the run. An edge is an artifact whose digest the reader lists as an input."
    )
    if times is None:
        lead += " Times are not part of this artifact (two runs must agree to the byte):"
        lead += " see the page in the run folder."
    kinds = [("s1", "policy"), (DATA, "data"), ("s2", "judge"), ("s4", "scores"), ("s5", "verdict")]
    body = join(
        el("div", drawing(boxes, trunks(facts, depth), depth), class_="scroll"),
        legend(kinds),
        timeline(times) if times and times.wall_seconds else None,
        folded("As a table", task_table(facts, times)),
    )
    return Section("Graph", lead, body)


def first(facts: Facts, task: str) -> Artifact:
    return next(a for a in facts.artifacts if a.task == task)


def colour(artifact: Artifact) -> str:
    """The colour class of what an artifact holds."""
    return KINDS.get(artifact.record, DATA)


def makers(facts: Facts) -> dict[str, Artifact]:
    """Digest -> the artifact that first had it; equal content has one maker."""
    return {a.digest: a for a in reversed(facts.artifacts)}


def sources(facts: Facts, task: str) -> list[str]:
    """The tasks whose artifacts a task reads."""
    made = makers(facts)
    needs = [
        made[d].task
        for a in facts.artifacts
        if a.task == task
        for d in a.inputs.values()
        if d in made
    ]
    return sorted({name for name in needs if name != task})


def depths(facts: Facts) -> dict[str, int]:
    """Layer of each task: right of all it reads; a source stands next to its first reader."""
    depth: dict[str, int] = {}
    for task in facts.tasks():
        depth[task] = 1 + max((depth[s] for s in sources(facts, task) if s in depth), default=-1)
    for task in reversed(facts.tasks()):
        readers = [depth[t] for t in facts.tasks() if task in sources(facts, t)]
        if not sources(facts, task) and readers:
            depth[task] = max(0, min(readers) - 1)
    return depth


def trunks(facts: Facts, depth: dict[str, int]) -> list[Trunk]:
    """One trunk for each task and kind of artifact, with the tasks that read it."""
    made, found = makers(facts), dict[tuple[str, str], dict[str, None]]()
    for a in facts.artifacts:
        for digest in a.inputs.values():
            source = made.get(digest)
            if source and depth[source.task] < depth[a.task]:
                found.setdefault((source.task, colour(source)), {})[a.task] = None
    return [Trunk(maker, kind, tuple(readers)) for (maker, kind), readers in found.items()]


def notes(task: str, facts: Facts, times: Times | None) -> list[str]:
    """What stands below a task's name: its number, and its time."""
    lines = [headline(first(facts, task), facts)]
    span = times.span(task) if times else None
    if span:
        lines.append("cached" if span.cached else duration(span.seconds))
    return lines


def headline(artifact: Artifact, facts: Facts) -> str:
    """The one number of a task that a reader looks for, else how many rows it made."""
    if artifact.stage == "benchmark":
        policy = artifact.task.removeprefix("benchmark").strip("_") or "policy"
        if policy in facts.ladder:
            return f"pass@1 {percent(facts.ladder[policy].value)}"
    if artifact.stage == "reward_model" and (told := judge_accuracy(facts)):
        return f"accuracy {percent(told.value)}"
    if artifact.stage == "gate" and facts.verdict:
        return str(facts.verdict.get("verdict", "no verdict"))
    rows = sum(a.rows or 0 for a in facts.artifacts if a.task == artifact.task)
    return f"{short(rows)} rows" if rows else artifact.record


def timeline(times: Times) -> Html:
    """Tasks against the clock: work solid, orchestration hatched by being lighter."""
    left, right, row, top = 178.0, 1010.0, 22.0, 8.0
    end = times.wall_seconds or 1.0
    bottom = top + row * len(times.spans)
    x = Scale(0, end, left, right)
    parts: list[Child] = []
    for tick in clock_ticks(end):
        parts += [
            line(x(tick), top, x(tick), bottom, "grid"),
            text(x(tick), bottom + 16, clock(tick), "tick", "middle"),
        ]
    for i, span in enumerate(times.spans):
        parts += bar(span, x, top + row * i, row)
    told = "; ".join(f"{s.task} {duration(s.seconds)}" for s in times.spans)
    return el(
        "figure",
        el(
            "figcaption",
            "Minutes since the start. Solid: work. Pale: orchestration since the task before.",
        ),
        el(
            "div",
            svg("timeline", 1096, bottom + 24, "Tasks against the clock", told, *parts),
            class_="scroll",
        ),
    )


def bar(span: Span, x: Scale, y: float, row: float) -> list[Child]:
    """One task of the time line."""
    end = span.begin + max(span.seconds, 0.0)
    before, around = span.begin - span.gap_seconds, span.overhead_seconds or 0.0
    after = end + max(0.0, around - span.gap_seconds)
    label = "cached" if span.cached else duration(span.seconds)
    spent = f"work {duration(span.seconds)}, orchestration {duration(span.overhead_seconds)}"
    tip = f"{span.task}: {spent}"
    return [
        text(x.start - 10, y + row / 2 + 4, span.task, "name", "end"),
        el(
            "rect",
            el("title", tip),
            x=x(before),
            y=y + 5,
            width=max(1, x(after) - x(before)),
            height=row - 10,
            class_="bar pale s1",
        ),
        el(
            "rect",
            el("title", tip),
            x=x(span.begin),
            y=y + 5,
            width=max(0, x(end) - x(span.begin)),
            height=row - 10,
            class_="bar s1",
        ),
        text(x(after) + 8, y + row / 2 + 4, label, "soft"),
    ]


def task_table(facts: Facts, times: Times | None) -> Html:
    """Task, stage, what it reads, its number, and its times where they are known."""
    head = ["task", "stage", "reads", "result"]
    head += ["work", "orchestration", "why it ran"] if times else []
    rows: list[list[Child]] = []
    for task in facts.tasks():
        artifact, span = first(facts, task), times.span(task) if times else None
        row: list[Child] = [
            task,
            artifact.stage,
            ", ".join(sources(facts, task)) or "nothing",
            headline(artifact, facts),
        ]
        if times:
            row += (
                [duration(span.seconds), duration(span.overhead_seconds), span.reason]
                if span
                else ["n/a", "n/a", ""]
            )
        rows.append(row)
    for span in times.spans if times else []:
        if span.task not in facts.tasks():
            rows.append(
                [
                    span.task,
                    span.stage,
                    "all of these",
                    "this page",
                    duration(span.seconds),
                    duration(span.overhead_seconds),
                    span.reason,
                ]
            )
    return table(head, rows, numeric=(4, 5) if times else ())
