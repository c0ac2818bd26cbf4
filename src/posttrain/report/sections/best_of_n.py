"""What more samples buy: pass@N, majority@N and judge@N."""

from collections.abc import Mapping

from posttrain.report.charts import Series, bands
from posttrain.report.facts import Facts
from posttrain.report.markup import Child, el, folded, join, percent, points, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.sections.verdict import interval
from posttrain.report.summary import best_of_n_curve
from posttrain.report.times import Times

LOOKS = {
    "pass_at_n": ("pass@N", "circle", "s1"),
    "majority": ("majority@N", "square", "s2"),
    "judge": ("judge@N", "diamond", "s3"),
}


def draw(facts: Facts, times: Times | None) -> Section:
    """The curve with interval bands, and its table."""
    curve = best_of_n_curve(facts)
    if not curve:
        return absent("Best of N", "No best_of_n scores among the inputs.")
    series = []
    for key, (name, shape, colour) in LOOKS.items():
        by_n = {p.n: e for p in curve if (e := getattr(p, key)) is not None}
        if by_n:
            series.append(Series(name, by_n, shape, colour))
    items = max(e.n for s in series for e in s.by_n.values())
    lead = (
        f"From one generation pass over {items} items. pass@N: some answer of N is right;"
        " majority@N: the most frequent one is; judge@N: the one the reward model likes best is."
        " Bands are 95% intervals over items."
    )
    head = ["N", *(column for s in series for column in (s.name, "95% interval"))]
    rows: list[list[Child]] = [
        [
            str(p.n),
            *(
                cell
                for s in series
                for cell in (
                    (percent(s.by_n[p.n].value), interval(s.by_n[p.n]))
                    if p.n in s.by_n
                    else ("", "")
                )
            ),
        ]
        for p in curve
    ]
    drawn = bands("best-of-n", "Share of items answered right, by N", series)
    body = join(
        el("div", drawn, class_="scroll"),
        el("p", gains(facts), class_="soft"),
        folded("As a table", table(head, rows, numeric=range(len(head)))),
    )
    return Section("Best of N", lead, body)


def gains(facts: Facts) -> str:
    """What choosing among N gains over one sample, and what it costs, as the stage reports it."""
    report = facts.report("best_of_n") or {}
    told = []
    for method in ("judge", "majority"):
        gain = report.get(f"{method}_gain")
        if isinstance(gain, Mapping):
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
