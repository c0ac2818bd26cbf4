"""The page: sections in order, in one HTML file that loads nothing from anywhere."""

import base64
import hashlib
from importlib import resources

from posttrain.report.facts import Facts
from posttrain.report.markup import Html, el
from posttrain.report.sections import (
    Draw,
    Section,
    best_of_n,
    cost,
    curation,
    curves,
    gate,
    graph,
    judge,
    lineage,
    samples,
    scores,
    verdict,
)
from posttrain.report.times import Times

SECTIONS: dict[str, Draw] = {
    "graph": graph.draw,
    "curves": curves.draw,
    "best-of-n": best_of_n.draw,
    "reward-model": judge.draw,
    "curation": curation.draw,
    "benchmarks": scores.draw,
    "samples": samples.draw,
    "gate": gate.draw,
    "lineage": lineage.draw,
    "cost": cost.draw,
}
"""Anchor -> section, in the order of the page."""


def render(facts: Facts, times: Times | None = None) -> str:
    """The whole page. Without times it depends on the facts alone, to the byte."""
    drawn = {anchor: draw(facts, times) for anchor, draw in SECTIONS.items()}
    top = verdict.draw(facts, times)
    style, script = asset("page.css"), asset("page.js")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=policy(script)),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", facts.title),
        el("style", style),
    )
    body = el(
        "body",
        el("a", "Skip to the sections", href="#graph", class_="skip"),
        el("header", el("h1", facts.title), el("p", origin(facts), class_="origin"), top.body),
        el(
            "nav",
            [el("a", s.title, href=f"#{anchor}") for anchor, s in drawn.items()],
            aria_label="Sections",
        ),
        el("main", [section(anchor, s) for anchor, s in drawn.items()]),
        el("script", script),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def section(anchor: str, drawn: Section) -> Html:
    """A heading that can be linked to, the line on how to read it, and the content."""
    lead = el("p", drawn.lead, class_="lead") if drawn.lead else None
    return el("section", el("h2", drawn.title), lead, drawn.body, id=anchor)


def origin(facts: Facts) -> str:
    """Seed and commit, where the run has one of each."""
    seeds = sorted({a.seed for a in facts.artifacts})
    commits = sorted({a.git[:10] for a in facts.artifacts})
    parts = [f"{len(facts.tasks())} tasks", f"{len(facts.artifacts)} artifacts"]
    parts.append(f"seed {', '.join(map(str, seeds))}" if seeds else "no seed")
    parts.append(f"commit {', '.join(commits)}" if commits else "no commit")
    return " · ".join(parts)


def asset(name: str) -> Html:
    """A file that ships with the package, trusted as it is."""
    return Html((resources.files("posttrain.report") / name).read_text(encoding="utf-8"))


def policy(script: str) -> str:
    """Nothing may load, and only our own script may run, whatever a model wrote."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
        f" form-action 'none'; script-src 'sha256-{digest}'"
    )
