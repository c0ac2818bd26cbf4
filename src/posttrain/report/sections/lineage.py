"""Where every artifact comes from."""

from posttrain.report.facts import Artifact, Facts
from posttrain.report.markup import Child, Html, el, join, short, table
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times


def draw(facts: Facts, times: Times | None) -> Section:
    """One row an artifact: digest, inputs, seed, commit, and the options that are not defaults."""
    if not facts.artifacts:
        return absent("Lineage", "No artifacts among the inputs.")
    names = {a.digest: f"{a.task}.{a.port}" for a in reversed(facts.artifacts)}
    rows: list[list[Child]] = [
        [
            f"{a.task}.{a.port}",
            a.record,
            short(a.rows) if a.rows is not None else "",
            el("code", a.digest[:12], title=a.digest),
            origins(a, names),
            str(a.seed),
            commit(a.git),
        ]
        for a in facts.artifacts
    ]
    head = ["artifact", "holds", "rows", "digest", "made from", "seed", "git"]
    lead = (
        "Digests are sha256 of the content: equal digests are equal artifacts. The full ones are in"
        " summary.json and under the pointer."
    )
    body = join(table(head, rows, numeric=(2, 5)), options(facts))
    return Section("Lineage", lead, body)


def origins(artifact: Artifact, names: dict[str, str]) -> Html:
    """The inputs by name, else by digest."""
    parts = [
        el(
            "div",
            el("span", f"{port} ", class_="soft"),
            names.get(digest, digest[:12]),
            title=digest,
        )
        for port, digest in artifact.inputs.items()
    ]
    return join(parts) if parts else el("span", "nothing", class_="soft")


def commit(git: str) -> Html:
    """A commit in short; `+` marks uncommitted changes."""
    brief = git[:10] + ("+" if git.endswith("+") else "") if len(git) > 12 else git
    return el("code", brief, title=git)


def options(facts: Facts) -> Html:
    """Options that depart from the defaults, task by task."""
    rows: list[list[Child]] = []
    for task in facts.tasks():
        departures = next(a.departures for a in facts.artifacts if a.task == task)
        rows += [[task, key, short(value)] for key, value in sorted(departures.items())]
    if not rows:
        return el("p", "Every option of every task is at its default.")
    return join(
        el("h3", "Options that are not at their defaults"), table(["task", "option", "value"], rows)
    )
