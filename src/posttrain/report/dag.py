"""The graph of a run as a drawing: tasks in layers, one trunk for each thing a task makes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from posttrain.report.charts import path, svg, text
from posttrain.report.layout import Node, heights, ordered
from posttrain.report.markup import Child, Html, el, num

WIDE, LANE, GAP, SPACE = 124.0, 10.0, 14.0, 28.0
LINE = 16.5


class Box(NamedTuple):
    """A task: its label and the small lines below it."""

    task: str
    notes: Sequence[str]
    colour: str


class Trunk(NamedTuple):
    """One output of a task and the tasks that read it; `colour` is its kind."""

    maker: str
    colour: str
    readers: tuple[str, ...]


class Lane(NamedTuple):
    """The passage of a trunk through a layer where it has no task."""

    trunk: int
    layer: int


def drawing(boxes: Sequence[Box], trunks: Sequence[Trunk], depth: Mapping[str, int]) -> Html:
    """Boxes from left to right by depth, and the trunks between them."""
    layers: list[list[Node]] = [[] for _ in range(1 + max(depth.values(), default=0))]
    for box in boxes:
        layers[depth[box.task]].append(box.task)
    edges, lanes = routes(trunks, depth)
    for lane in lanes:
        layers[lane.layer].append(lane)
    links: dict[Node, list[Node]] = {}
    for a, b, _ in edges:
        links.setdefault(a, []).append(b)
        links.setdefault(b, []).append(a)
    labels = {box.task: wrapped(box.task) for box in boxes}
    tall = max((len(labels[b.task]) + len(b.notes) for b in boxes), default=1) * LINE + 14
    sizes: dict[Node, float] = {
        node: LANE if isinstance(node, Lane) else tall for layer in layers for node in layer
    }
    chains: dict[Node, int] = {lane: lane.trunk for lane in lanes}
    y = heights(ordered(layers, links), links, sizes, chains, GAP)
    x = {node: 2 + i * (WIDE + SPACE) for i, layer in enumerate(layers) for node in layer}
    height = max((y[n] + sizes[n] / 2 for n in y), default=0.0) + 4
    arrows = arriving(edges, y)
    drawn: list[Child] = [
        el(
            "path",
            d=f"M{num(x[n])} {num(y[n] + 2)}h{num(WIDE)}",
            class_=f"edge {trunks[n.trunk].colour}",
        )
        for n in y
        if isinstance(n, Lane)
    ]
    for k, (a, b, colour) in enumerate(edges):
        drawn += edge(x[a] + WIDE, y[a] + 2, x[b], arrows[k] + 2, colour, not isinstance(b, Lane))
    drawn += [
        drawn_box(b, labels[b.task], x[b.task], y[b.task] - tall / 2 + 2, tall) for b in boxes
    ]
    told = "; ".join(f"{t.maker} feeds {', '.join(t.readers)}" for t in trunks)
    width = len(layers) * (WIDE + SPACE) - SPACE + 4
    style = f"min-width:{num(min(width, 860.0))}px"
    title = "The tasks of the run and what flows between them"
    return svg("graph", width, height, title, told, *drawn, class_="graph", style=style)


def routes(
    trunks: Sequence[Trunk], depth: Mapping[str, int]
) -> tuple[list[tuple[Node, Node, str]], list[Lane]]:
    """Edges between neighbouring layers only: a trunk gets a lane in each layer it passes."""
    edges: list[tuple[Node, Node, str]] = []
    lanes: list[Lane] = []
    for k, trunk in enumerate(trunks):
        start = depth[trunk.maker]
        way: dict[int, Node] = {start: trunk.maker}
        for layer in range(start + 1, max((depth[r] for r in trunk.readers), default=0)):
            lane = Lane(k, layer)
            way[layer] = lane
            lanes.append(lane)
            edges.append((way[layer - 1], lane, trunk.colour))
        edges += [(way[depth[r] - 1], r, trunk.colour) for r in trunk.readers]
    return edges, lanes


def arriving(edges: Sequence[tuple[Node, Node, str]], y: Mapping[Node, float]) -> list[float]:
    """Where each edge meets its box: edges into one box stand apart, in the order they come."""
    meets = [y[b] for _, b, _ in edges]
    for target in dict.fromkeys(b for _, b, _ in edges):
        into = sorted(
            (k for k, e in enumerate(edges) if e[1] == target), key=lambda k: y[edges[k][0]]
        )
        for place, k in enumerate(into):
            meets[k] = y[target] + (place - (len(into) - 1) / 2) * 9
    return meets


def edge(x1: float, y1: float, x2: float, y2: float, colour: str, arrow: bool) -> list[Child]:
    """A curve, with a head where it enters a box."""
    end = x2 - 5 if arrow else x2
    bend = (end - x1) * 0.55
    numbers = (x1, y1, x1 + bend, y1, end - bend, y2, end, y2)
    d = "M{} {}C{} {} {} {} {} {}".format(*map(num, numbers))
    head = path([(end - 1, y2 - 3.5), (x2, y2), (end - 1, y2 + 3.5)], f"head {colour}", close=True)
    return [el("path", d=d, class_=f"edge {colour}"), head if arrow else None]


def drawn_box(box: Box, label: Sequence[str], x: float, y: float, tall: float) -> Html:
    """A task: label in one or two lines, notes below."""
    lines = [*((part, "name") for part in label), *((note, "soft") for note in box.notes)]
    first = y + (tall - len(lines) * LINE) / 2 + LINE - 3.5
    return el(
        "g",
        el("title", " · ".join([box.task, *box.notes])),
        el("rect", x=x, y=y, width=WIDE, height=tall, rx=5, class_="box"),
        el("rect", x=x, y=y + 6, width=3, height=tall - 12, rx=1.5, class_=f"bar {box.colour}"),
        *(text(x + 12, first + i * LINE, part, class_) for i, (part, class_) in enumerate(lines)),
    )


def wrapped(name: str, room: int = 12) -> list[str]:
    """A name in lines of at most `room` characters, broken after underscores."""
    lines = [""]
    for part in name.replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return [line if len(line) <= room + 3 else line[: room + 2] + "…" for line in lines[:2]]
