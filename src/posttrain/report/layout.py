"""Where things go: positions with room between them, axis ticks, and layers of a graph."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple


class Scale(NamedTuple):
    """A linear map from data to pixels; a range of no width maps to its middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers inside [low, high], about `wanted` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def clock_ticks(seconds: float, wanted: int = 8) -> list[float]:
    """Ticks of a time axis at steps that a clock has."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
    step = next((s for s in steps if seconds / s <= wanted), steps[-1])
    return [float(step * i) for i in range(int(seconds / step) + 1)]


def spread(
    wished: Sequence[float], gaps: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """Positions nearest to the wished ones (weighted least squares) that keep order and distances.

    `gaps[i]` is the least distance from i to i+1. Pool adjacent violators.
    """
    offsets = [0.0]
    for gap in gaps[: max(0, len(wished) - 1)]:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, float, int]] = []
    for i, wish in enumerate(wished):
        weight = weights[i] if weights else 1.0
        total, count = (wish - offsets[i]) * weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / weight:
            before, heavy, size = blocks.pop()
            total, weight, count = total + before, weight + heavy, count + size
        blocks.append((total, weight, count))
    flat = [total / weight for total, weight, count in blocks for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]


Node = Hashable
Links = Mapping[Node, Sequence[Node]]


def ordered(layers: Sequence[Sequence[Node]], links: Links) -> list[list[Node]]:
    """Each layer in an order with few crossings (barycentre sweeps; the best one seen)."""
    current = [list(layer) for layer in layers]
    best, fewest = [list(layer) for layer in current], crossings(current, links)
    for sweep in range(16):
        forward = sweep % 2 == 0
        indices = range(1, len(current)) if forward else range(len(current) - 2, -1, -1)
        for i in indices:
            other = current[i - 1 if forward else i + 1]
            place = {node: k for k, node in enumerate(other)}

            def centre(node: Node, at: int, place: Mapping[Node, int] = place) -> float:
                near = [place[other] for other in links.get(node, ()) if other in place]
                return sum(near) / len(near) if near else float(at)

            keyed = [(centre(node, at), at, node) for at, node in enumerate(current[i])]
            current[i] = [node for _, _, node in sorted(keyed, key=lambda k: k[:2])]
        found = crossings(current, links)
        if found < fewest:
            best, fewest = [list(layer) for layer in current], found
    return best


def crossings(layers: Sequence[Sequence[Node]], links: Links) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    count = 0
    for upper, lower in itertools.pairwise(layers):
        place = {node: k for k, node in enumerate(lower)}
        ends = [(i, place[b]) for i, a in enumerate(upper) for b in links.get(a, ()) if b in place]
        count += sum(
            (a[0] - b[0]) * (a[1] - b[1]) < 0 for k, a in enumerate(ends) for b in ends[:k]
        )
    return count


def heights(
    layers: Sequence[Sequence[Node]],
    links: Links,
    sizes: Mapping[Node, float],
    chains: Mapping[Node, Hashable],
    gap: float,
) -> dict[Node, float]:
    """The middle of each node: near its neighbours, `gap` from the next node of its layer.

    Nodes of one chain wish for one height, and are heavier than others: long edges run straight.
    """
    y: dict[Node, float] = {}
    for layer in layers:
        at = 0.0
        for node in layer:
            y[node] = at + sizes[node] / 2
            at += sizes[node] + gap
    for sweep in range(80):
        shared = chain_heights(links, chains, y)
        for layer in layers if sweep % 2 == 0 else list(reversed(layers)):
            wished = []
            for node in layer:
                near = [y[n] for n in links.get(node, ())]
                own = sum(near) / len(near) if near else y[node]
                wished.append(shared.get(chains.get(node), own))
            gaps = [(sizes[a] + sizes[b]) / 2 + gap for a, b in itertools.pairwise(layer)]
            weights = [12.0 if node in chains else 1.0 for node in layer]
            y.update(zip(layer, spread(wished, gaps, weights), strict=True))
    top = min((y[n] - sizes[n] / 2 for n in y), default=0.0)
    return {node: value - top for node, value in y.items()}


def chain_heights(
    links: Links, chains: Mapping[Node, Hashable], y: Mapping[Node, float]
) -> dict[Hashable, float]:
    """The mean height of what each chain ends in."""
    ends: dict[Hashable, list[float]] = {}
    for node, chain in chains.items():
        ends.setdefault(chain, []).extend(y[n] for n in links[node] if chains.get(n) != chain)
    return {chain: sum(found) / len(found) for chain, found in ends.items() if found}
