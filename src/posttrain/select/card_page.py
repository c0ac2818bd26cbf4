"""A card as text: Markdown for a repository, HTML for a browser. Text of rows is never markup."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from posttrain.report.markup import CONTROL, REORDERING, Html, el
from posttrain.select.card import Card, Spread
from posttrain.select.licences import licence_of

LONGEST = 400
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{padding:.2rem .8rem;"
    "border-bottom:1px solid #ccc;text-align:left}pre{white-space:pre-wrap;background:#f4f4f4;"
    "padding:.6rem}.bars{display:flex;align-items:flex-end;height:2rem;gap:1px;width:8rem}"
    ".bars i{flex:1;background:#4878a8}"
)


class Table(NamedTuple):
    """A heading, the names of the columns, and rows of cells; `bars` beside each row if known."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    bars: list[tuple[int, ...]] = []


def tables(card: Card) -> Iterator[Table]:
    """The tables of a card; those without rows are left out."""
    yield Table("How it was made", ("what", "value"), list(origin(card)))
    yield Table(
        "Sources and licences",
        ("source", "rows", "licence", "from"),
        [
            (source, f"{n:,}", licence_of(source).name, licence_of(source).home)
            for source, n in card.sources.most_common()
        ],
    )
    yield counts("Tasks", "task", card.tasks)
    yield counts("Difficulty", "band", dict(sorted(card.difficulty.items())))
    yield spreads("Length in characters", card.spreads)
    yield spreads("What was measured of these rows", card.measured)


def origin(card: Card) -> Iterator[tuple[str, str]]:
    """Stage, options, digests and the numbers of the report, as the manifest has them."""
    manifest = card.manifest
    yield "record", manifest.record
    yield "rows", f"{card.rows:,}"
    yield "task", f"{manifest.task} (stage {manifest.stage}, seed {manifest.seed})"
    yield "options", json.dumps(manifest.config, sort_keys=True)
    yield "digest", manifest.digest
    for port, digest in manifest.inputs.items():
        yield f"made from: {port}", digest
    for name in ("rows_read", "rows_in", "kept"):
        if name in manifest.report:
            yield name.replace("_", " "), f"{manifest.report[name]:,}"
    for name, n in manifest.report.get("left", {}).items():
        yield f"left after {name}", f"{n:,}"


def counts(title: str, name: str, found: Mapping[str, int]) -> Table:
    """A table of counts."""
    return Table(title, (name, "rows"), [(key, f"{n:,}") for key, n in found.items()])


def spreads(title: str, found: Mapping[str, Spread]) -> Table:
    """A table of distributions."""
    columns = ("of", "rows", "mean", "least", "10%", "median", "90%", "most")
    rows = [
        (name, f"{spread.n:,}", *(f"{value:.6g}" for value in spread[1:7]))
        for name, spread in found.items()
    ]
    return Table(title, columns, rows, [spread.bars for spread in found.values()])


def notes(card: Card) -> Iterator[str]:
    """What a reader must be told in words."""
    if card.offensive:
        names = ", ".join(card.offensive)
        yield (
            f"Offensive content: {names} holds red-team text that many will find offensive; it is"
            " there to teach what not to say. No example of it is shown here."
        )
    else:
        yield "Offensive content: no source of these rows is known for it; nobody read every row."
    if card.unknown:
        yield f"Licence unknown: {', '.join(card.unknown)}. Look it up before you publish."


def markdown(card: Card) -> str:
    """The card for a repository."""
    lines = [f"# {cell(card.name)}", ""]
    for note in notes(card):
        lines += [cell(note), ""]
    for table in tables(card):
        if table.rows:
            lines += [f"## {table.title}", ""]
            lines += [f"| {' | '.join(row)} |" for row in (table.columns, ("---",) * len(table[1]))]
            lines += [f"| {' | '.join(map(cell, row))} |" for row in table.rows] + [""]
    lines += ["## Examples", ""]
    for number, example in enumerate(card.examples, 1):
        lines += [f"### Row {number}", ""]
        for name, text in example.items():
            lines += [f"{name}:", ""]
            lines += [f"    {line}" for line in shortened(text).split("\n")] + [""]
    return "\n".join(lines).rstrip() + "\n"


def page(card: Card) -> str:
    """The card for a browser, in one file."""
    body: list[Html] = [el("h1", card.name), *(el("p", note) for note in notes(card))]
    for table in tables(card):
        if table.rows:
            head = el("tr", *(el("th", name) for name in table.columns))
            bars = table.bars or [()] * len(table.rows)
            found = [
                el("tr", *(el("td", text) for text in row), el("td", histogram(each)))
                for row, each in zip(table.rows, bars, strict=True)
            ]
            body += [el("h2", table.title), el("table", head, *found)]
    body.append(el("h2", "Examples"))
    for example in card.examples:
        body += [
            el("div", el("b", name), el("pre", shortened(text))) for name, text in example.items()
        ]
    head = el("head", el("meta", charset="utf-8"), el("title", card.name), el("style", Html(STYLE)))
    return f"<!doctype html>{el('html', head, el('body', *body), lang='en')}\n"


def histogram(bars: tuple[int, ...]) -> Html | None:
    """The bars of a distribution."""
    if not bars:
        return None
    highest = max(bars)
    each = [el("i", style=f"height:{100 * n / highest:.0f}%", title=str(n)) for n in bars]
    return el("div", *each, class_="bars")


def visible(text: str) -> str:
    """Text in which characters that hide or reorder others can be seen."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    return REORDERING.sub(lambda mark: f"[U+{ord(mark[0]):04X}]", text)


def shortened(text: str) -> str:
    """The start of a row's text."""
    text = visible(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [...]"


def cell(text: str) -> str:
    """Text that cannot leave its cell of a Markdown table, nor be markup in it."""
    text = " ".join(visible(text).split())
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, f"\\{mark}")
    return text
