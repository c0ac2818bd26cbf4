"""The arena's table as Markdown and as one HTML file that loads nothing from anywhere."""

from collections.abc import Iterator, Sequence

from posttrain.arena.config import Arena
from posttrain.arena.table import Gain, Row
from posttrain.methods import load_method
from posttrain.report.markup import Child, duration, el, percent, points, short, table
from posttrain.report.page import asset, policy

HEAD = (
    "method",
    "pass@1",
    "± seeds",
    "over the start",
    "over {baseline}",
    "p (Holm)",
    "rollouts",
    "tokens",
    "time",
    "efficiency",
    "entropy",
    "length",
    "went wrong",
)


def cells_of(row: Row) -> list[str]:
    """One line of the table, in the order of HEAD."""
    over = row.over_baseline
    return [
        row.method,
        percent(row.pass_at_1),
        percent(row.spread),
        told(row.over_start),
        told(over) if over else "—",
        f"{over.p:.3f}" if over else "—",
        short(round(row.rollouts)),
        short(round(row.tokens)),
        duration(row.seconds),
        f"{row.efficiency:.2f}" if row.efficiency else "—",
        f"×{row.entropy:.2f}",
        f"×{row.length:.2f}",
        "; ".join([*row.modes, *row.failures]) or "—",
    ]


def told(gain: Gain) -> str:
    """A gain in points with its interval."""
    return f"{points(gain.value)} [{points(gain.low)}, {points(gain.high)}]"


def head(arena: Arena) -> list[str]:
    """The columns."""
    return [name.format(baseline=arena.baseline) for name in HEAD]


def lead(arena: Arena) -> str:
    """How to read the table."""
    budget = f"{arena.rollouts} fresh rollouts" if arena.rollouts else f"{arena.seconds:g} s"
    return (
        f"Every method began with the same policy and the same prompts and had {budget}; seeds"
        f" {', '.join(map(str, arena.seeds))}. Gains are in points of pass@1, paired over items,"
        " with 95% intervals. Efficiency: rollouts until the baseline's last reward was reached,"
        " over the baseline's. Entropy and length: the last five steps over the first five."
    )


def markdown(arena: Arena, rows: Sequence[Row]) -> str:
    """The table for a reader of the repository."""
    return "\n".join(_markdown(arena, rows)) + "\n"


def _markdown(arena: Arena, rows: Sequence[Row]) -> Iterator[str]:
    yield lead(arena)
    for ground in arena.grounds:
        yield f"\n## {ground}\n"
        yield "| " + " | ".join(head(arena)) + " |"
        yield "|" + "---|" * len(HEAD)
        for row in rows:
            if row.ground == ground:
                yield "| " + " | ".join(cells_of(row)) + " |"


def render(arena: Arena, rows: Sequence[Row]) -> str:
    """The page."""
    title = arena.about or "Arena"
    sections: list[Child] = []
    for ground in arena.grounds:
        own = [row for row in rows if row.ground == ground]
        drawn = table(head(arena), map(cells_of, own), numeric=range(1, len(HEAD) - 1))
        sections.append(el("section", el("h2", ground), drawn))
    papers = [
        (name, load_method(str(options.get("method", name))))
        for name, options in arena.methods.items()
    ]
    described = table(("method", "what", "paper"), ([name, m.about, m.paper] for name, m in papers))
    script = asset("page.js")
    top = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=policy(script)),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        el("style", asset("page.css")),
    )
    body = el(
        "body",
        el("header", el("h1", title), el("p", lead(arena), class_="lead")),
        el("main", *sections, el("section", el("h2", "Methods"), described)),
        el("script", script),
    )
    return f"<!doctype html>\n{el('html', top, body, lang='en')}\n"
