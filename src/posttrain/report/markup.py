"""Markup that cannot be broken by its content: text is escaped unless it is already `Html`.

Model output is hostile input. It is escaped here and nowhere else; control characters and the
marks that reorder text are shown as visible symbols.
"""

import html
import math
import re
from collections.abc import Iterable

VOID = {"br", "col", "hr", "img", "link", "meta"}
REORDERING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
NOT_XML = re.compile("[\x80-\x9f\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def clean(text: str) -> str:
    """Text safe to put between tags or in quotes."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    text = CONTROL.sub(lambda m: chr(0x2400 + ord(m[0])) if m[0] != "\x7f" else "\u2421", text)
    text = REORDERING.sub(lambda m: f"[U+{ord(m[0]):04X}]", NOT_XML.sub("\ufffd", text))
    return html.escape(text, quote=True)


def join(*children: Child) -> Html:
    """Children one after another; `None` is nothing."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(clean(child))
        elif child is not None:
            parts.append(join(*child))
    return Html("".join(parts))


def el(tag: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """An element. `class_` is `class`, `stroke_width` is `stroke-width`; numbers are rounded."""
    given = "".join(
        f' {CASED.get(key) or key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{join(*children)}</{tag}>")


CASED = {"view_box": "viewBox"}


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else num(value)


def num(value: float) -> str:
    """A coordinate: two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def percent(value: float | None, digits: int = 1) -> str:
    """0.123 -> 12.3%; what is no number is called so."""
    if value is None or not math.isfinite(value):
        return "n/a" if value is None else "NaN" if math.isnan(value) else "inf"
    return f"{100 * value:.{digits}f}%"


def points(value: float | None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    if value is None or not math.isfinite(value):
        return "n/a" if value is None else "NaN"
    return f"{100 * value:+.1f}".replace("-", "\u2212")


def short(value: object) -> str:
    """A value of a report or config in a few characters."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "inf" if value > 0 else "\u2212inf"
        return f"{value:.4g}".replace("-", "\u2212")
    if isinstance(value, dict):
        return ", ".join(f"{key} {short(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(short, value)) or "none"
    return str(value)


def duration(seconds: float | None) -> str:
    """4.2 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None or not math.isfinite(seconds):
        return "n/a"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def clock(seconds: float) -> str:
    """95 -> 1:35."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def table(
    head: Iterable[Child],
    rows: Iterable[Iterable[Child]],
    *,
    numeric: Iterable[int] = (),
    class_: str | None = None,
) -> Html:
    """A table whose first column heads its rows; `numeric` columns are right-aligned."""
    right = set(numeric)

    def cell(kind: str, index: int, content: Child, **more: str) -> Html:
        if isinstance(content, Html) and content.startswith("<td"):
            return content
        return el(kind, content, class_="n" if index in right else None, **more)

    body = [
        el(
            "tr",
            [
                cell("td" if i else "th", i, c, **({} if i else {"scope": "row"}))
                for i, c in enumerate(row)
            ],
        )
        for row in rows
    ]
    return el(
        "div",
        el(
            "table",
            el("thead", el("tr", [cell("th", i, c, scope="col") for i, c in enumerate(head)])),
            el("tbody", body),
            class_=class_,
        ),
        class_="scroll",
    )


def folded(label: Child, *content: Child) -> Html:
    """Content behind a line that opens it; open on paper."""
    return el("details", el("summary", label), *content)
