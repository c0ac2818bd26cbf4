"""What more samples buy: pass@N, majority@N, judge@N and what other selectors choose."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from posttrain.report.charts import Series, bands
from posttrain.report.facts import Facts
from posttrain.report.markup import Child, el, folded, join, percent, points, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.sections.verdict import interval
from posttrain.report.summary import CurvePoint, best_of_n_curve
from posttrain.report.times import Times

LOOKS = {
    "pass": ("pass@N", "circle", "s1"),
    "majority": ("majority@N", "square", "s2"),
    "judge": ("judge@N", "diamond", "s3"),
}
MORE_LOOKS = (("circle", "s4"), ("square", "s5"), ("diamond", "s1"), ("circle", "s2"))

BAD = {
    "empty": "were empty",
    "huge": "were too long to be judged",
    "no_prediction": "gave no final answer, so they did not vote",
    "truncated": "were cut at the longest length",
    "judge_failed": "got no score, because the judge failed or was away",
    "judge_not_finite": "got a score that is no finite number",
    "logp_not_finite": "had a log-prob that is no finite number",
    "no_verdict": "had no verdict and count as wrong",
}


def draw(facts: Facts, times: Times | None) -> Section:
    """The curve with interval bands, its table, and what a solved item costs."""
    curve = best_of_n_curve(facts)
    if not curve:
        return absent("Best of N", "No best_of_n scores among the inputs.")
    series = series_of(curve)
    items = max(e.n for s in series.values() for e in s.by_n.values())
    lead = (
        f"From one generation pass over {items} items. pass@N: some answer of N is right;"
        " majority@N: the most frequent one is; judge@N: the one the reward model likes best is;"
        " weighted_majority@N: the one with most of the judge's weight is; self_certainty@N: the"
        " one the policy finds likeliest is. Bands are 95% intervals over items."
    )
    head = ["N", *(column for s in series.values() for column in (s.name, "95% interval"))]
    rows: list[list[Child]] = [
        [
            str(p.n),
            *(
                cell
                for s in series.values()
                for cell in (
                    (percent(s.by_n[p.n].value), interval(s.by_n[p.n]))
                    if p.n in s.by_n
                    else ("", "")
                )
            ),
        ]
        for p in curve
    ]
    drawn = bands("best-of-n", "Share of items answered right, by N", list(series.values()))
    body = join(
        el("div", drawn, class_="scroll"),
        el("p", gains(facts), class_="soft"),
        el("p", bad, class_="soft") if (bad := outcomes(facts)) else None,
        folded("As a table", table(head, rows, numeric=range(len(head)))),
        cost(facts, times, series),
    )
    return Section("Best of N", lead, body)


def series_of(curve: Sequence[CurvePoint]) -> dict[str, Series]:
    """The line of every method, by the name that its scores have."""
    names = dict.fromkeys(name for point in curve for name in point.methods())
    more = [name for name in names if name not in LOOKS]
    looks = LOOKS | {
        name: (f"{name}@N", *look) for name, look in zip(more, cycle(MORE_LOOKS), strict=False)
    }
    found = {}
    for name in sorted(names, key=list(looks).index):
        by_n = {p.n: p.methods()[name] for p in curve if name in p.methods()}
        title, shape, colour = looks[name]
        found[name] = Series(title, by_n, shape, colour)
    return found


def cost(facts: Facts, times: Times | None, series: Mapping[str, Series]) -> Child:
    """Tokens, and seconds of generation where they are known, per solved item by method and N.

    The work of the judge is not in it.
    """
    report = facts.report("best_of_n") or {}
    told = {int(p["k"]): p for p in report.get("curve", ()) if isinstance(p, Mapping) and "k" in p}
    if not told:
        return None
    task = next((a.task for a in facts.artifacts if a.stage == "best_of_n"), "best_of_n")
    span = times.span(task) if times else None
    seconds = span.generation_seconds if span else None
    samples = report.get("samples")
    each = seconds / samples if seconds and samples else None
    head: list[Child] = ["N"]
    for s in series.values():
        head += [f"{s.name}, tokens", *([f"{s.name}, seconds"] if each else [])]
    rows: list[list[Child]] = []
    for n, point in told.items():
        row: list[Child] = [str(n)]
        for name, s in series.items():
            tokens = point.get(f"{name}_tokens_per_solved")
            share = s.by_n[n].value if n in s.by_n else 0.0
            row.append(short(round(tokens)) if isinstance(tokens, int | float) else "n/a")
            row += [short(n * each / share) if share else "n/a"] if each else []
        rows.append(row)
    return folded("Generation per solved item", table(head, rows, numeric=range(len(head))))


def outcomes(facts: Facts) -> str | None:
    """What went wrong with answers and scores, in counts, and which selectors lacked something."""
    report = facts.report("best_of_n") or {}
    counts = report.get("outcomes")
    counts = counts if isinstance(counts, Mapping) else {}
    bad = [f"{short(counts[key])} {how}" for key, how in BAD.items() if counts.get(key)]
    told = [f"Of {short(report.get('samples'))} samples {', '.join(bad)}."] if bad else []
    lacking = report.get("lacking") or ()
    told += [f"Left out for want of scores or log-probs: {', '.join(lacking)}."] if lacking else []
    return " ".join(told) or None


def gains(facts: Facts) -> str:
    """What choosing among N gains over one sample, and what it costs, as the stage reports it."""
    report = facts.report("best_of_n") or {}
    told = []
    others = report.get("gains")
    found = {name: report.get(f"{name}_gain") for name in ("judge", "majority")}
    found |= others if isinstance(others, Mapping) else {}
    for method, gain in found.items():
        if isinstance(gain, Mapping) and method != "pass":
            low, high = points(gain.get("low")), points(gain.get("high"))
            told.append(
                f"{method}@{report.get('n_max')} is {points(gain.get('value'))} points over pass@1"
                f" (95% interval {low} to {high})."
            )
    if isinstance(report.get("judge_accuracy"), float):
        told.append(
            f"Of a right and a wrong answer to one item the judge prefers the right one"
            f" {percent(report['judge_accuracy'])} of the time."
        )
    if isinstance(report.get("tokens_per_solved"), float):
        told.append(f"A solved item takes {short(round(report['tokens_per_solved']))} tokens.")
    return " ".join(told)
