"""Every policy on every suite, and where it fails: by difficulty."""

from typing import Any

from posttrain.report.compare import ladder_order
from posttrain.report.facts import Estimate, Facts
from posttrain.report.markup import Child, Html, el, folded, join, percent, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.sections.verdict import interval
from posttrain.report.times import Times

HOW = ("engine", "template", "temperature", "seed")


def draw(facts: Facts, times: Times | None) -> Section:
    """Suites by policies with intervals, then a heat-table by difficulty band."""
    told = [t for t in facts.scores if t.policy != "best_of_n" and "/" not in t.score.metric]
    if not told:
        return absent("Benchmarks", "No benchmark scores among the inputs.")
    policies = ladder_order({t.policy for t in told})
    found = {
        (t.score.suite, t.score.metric, t.policy): Estimate(
            value=t.score.value, low=t.score.low, high=t.score.high, n=t.score.n
        )
        for t in told
    }
    lines = sorted({(s, m) for s, m, _ in found}, key=lambda k: (k[0] != facts.suite, k))
    rows: list[list[Child]] = [
        [
            join(suite, " ", el("small", metric)),
            items(found, suite, metric, policies),
            *(score(found.get((suite, metric, p))) for p in policies),
        ]
        for suite, metric in lines
    ]
    lead = (
        "Percent, with 95% intervals over items. Suites other than the first were not trained on."
    )
    numeric = range(1, 2 + len(policies))
    body = join(
        table(["suite", "items", *policies], rows, numeric=numeric),
        how(facts),
        engines(facts),
        audits(facts),
        bands(facts, policies),
    )
    return Section("Benchmarks", lead, body)


def items(
    found: dict[tuple[str, str, str], Estimate], suite: str, metric: str, policies: list[str]
) -> str:
    """How many items; a range where policies differ."""
    sizes = sorted({found[k].n for p in policies if (k := (suite, metric, p)) in found})
    return "–".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))


def score(found: Estimate | None) -> Html:
    """A value over its interval."""
    if found is None:
        return el("span", "n/a", class_="soft")
    return join(percent(found.value), " ", el("small", interval(found)))


def reports(facts: Facts) -> dict[str, dict[str, Any]]:
    """What each benchmark task tells."""
    return {a.task: a.report for a in facts.artifacts if a.stage == "benchmark" and a.report}


def how(facts: Facts) -> Html | None:
    """With which engine, chat template, temperature and seed each policy answered."""
    rows: list[list[Child]] = [
        [task, *(short(told.get(name, "n/a")) for name in HOW)]
        for task, told in reports(facts).items()
    ]
    if not rows:
        return None
    head = ["task", *(name.replace("_", " ") for name in HOW)]
    return folded("How they were measured", table(head, rows, numeric=(3, 4)))


def engines(facts: Facts) -> Html | None:
    """Whether a second engine says the same of the same weights, and if not, why."""
    rows: list[list[Child]] = []
    for task, told in reports(facts).items():
        for suite, found in (told.get("agreement") or {}).items():
            why = (told.get("disagreements") or {}).get(suite, "")
            cells = (percent(found["equal"]), short(found["gap"]), short(found["tolerance"]))
            verdict = "✓" if found["agree"] else f"✕ {why}"
            rows.append([f"{task}, {suite}", short(round(found["items"])), *cells, verdict])
    if not rows:
        return None
    head = ["task, suite", "items", "same answers", "nats a token", "allowed", "the engines agree"]
    return join(el("h3", "A second engine"), table(head, rows, numeric=range(1, 5)))


def audits(facts: Facts) -> Html | None:
    """What wrong labels do to a score and to the order of policies."""
    rows: list[list[Child]] = [
        [f"{task}, {suite}", short({name.replace("_", " "): of for name, of in found.items()})]
        for task, told in reports(facts).items()
        for suite, found in (told.get("audit") or {}).items()
    ]
    if not rows:
        return None
    return join(el("h3", "Label audit"), table(["task, suite", "found"], rows))


def bands(facts: Facts, policies: list[str]) -> Html | None:
    """Share correct by suite and difficulty; the deeper the colour, the more is right."""
    cells = {(c.suite, c.difficulty, c.policy): c for c in facts.cells}
    lines = sorted({(s, d) for s, d, _ in cells}, key=lambda k: (k[0] != facts.suite, k))
    if not lines:
        return None
    rows: list[list[Child]] = []
    for suite, difficulty in lines:
        present = [c for p in policies if (c := cells.get((suite, difficulty, p)))]
        row: list[Child] = [f"{suite}, {difficulty}", str(max(c.n for c in present))]
        for policy in policies:
            cell = cells.get((suite, difficulty, policy))
            row.append(heat(cell.value) if cell else el("td", "n/a", class_="n soft"))
        rows.append(row)
    head = ["suite, difficulty", "samples", *policies]
    return join(
        el("h3", "By difficulty"),
        table(head, rows, numeric=range(1, 2 + len(policies)), class_="bands"),
    )


def heat(share: float) -> Html:
    """A cell whose depth of colour is its value."""
    return el("td", percent(share, 0), class_="n heat", style=f"--heat:{100 * share:.0f}%")
