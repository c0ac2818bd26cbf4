"""The top of the page: the gate's word, four numbers, and the ladder."""

from posttrain.report.charts import Step, ladder
from posttrain.report.facts import Estimate, Facts
from posttrain.report.markup import Child, Html, duration, el, folded, join, percent, points, table
from posttrain.report.sections import Section
from posttrain.report.summary import finite, summarise
from posttrain.report.times import Times

SIGNS = {"pass": "✓", "fail": "✕", "investigate": "?"}


def draw(facts: Facts, times: Times | None) -> Section:
    """Verdict, tiles and the ladder of policies."""
    body = join(word(facts), tiles(facts, times), steps(facts))
    return Section("Verdict", "", body, missing=not facts.ladder)


def word(facts: Facts) -> Html:
    """The gate's verdict with its reason; sign and word, not colour alone."""
    if not facts.verdict:
        return el("p", "No gate verdict among the inputs.", class_="absent")
    verdict = str(facts.verdict.get("verdict", "unknown")).lower()
    given = facts.verdict.get("reason") or facts.verdict.get("reasons") or ""
    reasons = "; ".join(map(str, given)) if isinstance(given, list) else str(given)
    kind = verdict if verdict in SIGNS else "investigate"
    return el(
        "p",
        el("b", f"{SIGNS[kind]} {verdict}", class_="word"),
        el("span", reasons) if reasons else None,
        class_=f"verdict {kind}",
    )


def tiles(facts: Facts, times: Times | None) -> Html:
    """The numbers that most readers came for."""
    metrics = summarise(facts).metrics
    shown: list[Html] = []
    if facts.ladder:
        last = list(facts.ladder)[-1]
        gain = next((d for d in facts.deltas if d.policy == last), None)
        more = f"{points(gain.gain.value)} points over {gain.start}" if gain else facts.suite
        shown.append(tile(percent(facts.ladder[last].value), f"pass@1 of {last}", more))
    if metrics.best_of_n:
        end = metrics.best_of_n[-1]
        judged = end.judge or end.majority or end.pass_at_n
        name = "judge" if end.judge else "majority" if end.majority else "pass"
        first = metrics.best_of_n[0].pass_at_n
        more = (
            f"{points(judged.value - first.value)} points over pass@1" if judged and first else ""
        )
        shown.append(tile(percent(judged.value if judged else None), f"{name}@{end.n}", more))
    if metrics.reward_model_accuracy is not None:
        shown.append(
            tile(
                percent(metrics.reward_model_accuracy),
                "reward model",
                "held-out pairs ranked right",
            )
        )
    if times and times.wall_seconds is not None:
        cached = sum(span.cached for span in times.spans)
        more = (
            f"{cached} of {len(times.spans)} tasks cached"
            if cached
            else (f"{duration(times.overhead_seconds)} of it orchestration")
        )
        shown.append(tile(duration(times.wall_seconds), "wall time", more))
    else:
        shown.append(tile(str(len(facts.tasks())), "tasks", "times: see the run folder"))
    return el("div", shown, class_="tiles")


def tile(number: str, label: str, more: str) -> Html:
    return el("div", el("b", number), el("span", label), el("small", more), class_="tile")


def steps(facts: Facts) -> Html:
    """The ladder as a drawing and as a table."""
    if not facts.ladder:
        return el("p", "No benchmark scores among the inputs: there is no ladder.", class_="absent")
    gains = {d.policy: d for d in facts.deltas}
    rows = [Step(p, e, gains[p].gain if p in gains else None) for p, e in facts.ladder.items()]
    sizes = sorted({e.n for e in facts.ladder.values()})
    items = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    caption = f"pass@1 on {facts.suite}, {items} held-out items. Lines are 95% intervals"
    caption += "; gains over the policy before are paired by item." if gains else "."
    head = ["policy", "pass@1", "95% interval", "items", "gain, points", "95% interval, paired"]
    cells: list[list[Child]] = [
        [
            s.name,
            percent(s.found.value),
            interval(s.found),
            str(s.found.n),
            points(s.gain.value) if s.gain else "",
            gap(s.gain),
        ]
        for s in rows
    ]
    return el(
        "figure",
        el("figcaption", caption),
        el("div", ladder(rows, facts.suite), class_="scroll"),
        folded("As a table", table(head, cells, numeric=range(1, 6))),
    )


def interval(found: Estimate) -> str:
    """`12.1 – 15.0`, in percent."""
    if not (finite(found.low) and finite(found.high)):
        return "n/a"
    return f"{100 * found.low:.1f} – {100 * found.high:.1f}"


def gap(gain: Estimate | None) -> str:
    return f"{points(gain.low)} to {points(gain.high)}" if gain else ""
