"""The page's sections: facts and times in; title, a line on how to read it, and markup out.

To add one, write a function `draw(facts, times) -> Section` in a file of its own and add a line
to `SECTIONS` in `posttrain/report/page.py`.
"""

from collections.abc import Callable
from typing import NamedTuple

from posttrain.report.facts import Facts
from posttrain.report.markup import Html, el
from posttrain.report.times import Times


class Section(NamedTuple):
    """One part of the page. `missing` is set where the run has nothing to show."""

    title: str
    lead: str
    body: Html
    missing: bool = False


Draw = Callable[[Facts, Times | None], Section]


def absent(title: str, what: str) -> Section:
    """A section that says what the run lacks."""
    return Section(title, "", el("p", what, class_="absent"), missing=True)
