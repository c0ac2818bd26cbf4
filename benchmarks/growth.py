"""The growth plot of curation: seconds over rows, both on logarithmic axes, as one SVG file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from posttrain.report.charts import dot, line, path, svg, text
from posttrain.report.layout import Scale
from posttrain.report.markup import Child, el

WIDTH, HEIGHT = 560.0, 320.0
STYLE = (
    "text{font:12px sans-serif;fill:#444}.axis{stroke:#ddd}.even{stroke:#999;stroke-dasharray:4 4;"
    "fill:none}.wall{stroke:#0969da;fill:none}.cpu{stroke:#bc4c00;fill:none}"
    ".wall-dot{fill:#0969da}.cpu-dot{fill:#bc4c00}.wall-text{fill:#0969da}.cpu-text{fill:#bc4c00}"
)


class Measured(TypedDict):
    """A run of the standard chain; `mib` is the peak of all its processes together."""

    rows: int
    seconds: float
    cpu_seconds: float
    mib: float


def plot(target: Path, measured: Sequence[Measured]) -> None:
    """Draw wall and CPU seconds; the dashed line costs as much a row as the largest run did."""
    rows = [each["rows"] for each in measured]
    last = measured[-1]["cpu_seconds"] / rows[-1]
    times = [t for each in measured for t in (each["seconds"], each["cpu_seconds"])]
    low, high = math.floor(math.log10(min(*times, last * rows[0]))), math.log10(max(times))
    x = Scale(math.log10(rows[0]), math.log10(rows[-1]), 60, WIDTH - 110)
    y = Scale(low, math.ceil(high), HEIGHT - 40, 30)

    def at(count: float, seconds: float) -> tuple[float, float]:
        return x(math.log10(count)), y(math.log10(seconds))

    drawn: list[Child] = [el("style", STYLE)]
    for power in range(low, math.ceil(high) + 1):
        drawn.append(line(60, y(power), WIDTH - 110, y(power), "axis"))
        drawn.append(text(52, y(power) + 4, f"{10.0**power:g} s", anchor="end"))
    for count in rows:
        drawn.append(text(x(math.log10(count)), HEIGHT - 18, f"{count:,} rows", anchor="middle"))
    drawn.append(path([at(count, last * count) for count in (rows[0], rows[-1])], "even"))
    for key, name, label in (("cpu_seconds", "cpu", "CPU"), ("seconds", "wall", "wall clock")):
        points = [at(each["rows"], each[key]) for each in measured]  # type: ignore[literal-required]
        drawn.append(path(points, name))
        for each, (left, top) in zip(measured, points, strict=True):
            drawn.append(dot(left, top, "circle", f"{name}-dot", f"{each[key]:.1f} s"))  # type: ignore[literal-required]
        left, top = points[-1]
        drawn.append(text(left + 10, top + 4, f"{label} {measured[-1][key]:.0f} s", f"{name}-text"))  # type: ignore[literal-required]
    title = "Seconds of the standard chain of curation as rows grow"
    desc = "; ".join(
        f"{each['rows']:,} rows: {each['seconds']:.1f} s, {each['cpu_seconds']:.1f} s of CPU,"
        f" {each['mib']:,.0f} MiB"
        for each in measured
    )
    namespace = {"xmlns": "http://www.w3.org/2000/svg"}
    drawing = svg("growth", WIDTH, HEIGHT, title, desc, *drawn, **namespace)
    target.write_text(f"{drawing}\n", encoding="utf-8")
