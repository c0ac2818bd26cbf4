"""The journal of one running stage: metrics by step, progress, and a scratch folder.

A journal is what a stage leaves behind that is not its result. Metrics are lines in
`curves.jsonl`, on disk before anything is sent anywhere; `scratch` outlives a kill, so
checkpoints go there. When a resumed stage logs a step again, the later line counts.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from posttrain.artifacts import CURVES


class Point(NamedTuple):
    """One metric at one step; `time` in Unix seconds."""

    step: int
    time: float
    name: str
    value: float


class Journal:
    """Where `run` writes metrics, progress and checkpoints."""

    def __init__(self, folder: Path, *, scratch: Path | None = None, label: str = "") -> None:
        self.scratch = scratch or folder / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.curves = folder / CURVES
        self.curves.parent.mkdir(parents=True, exist_ok=True)
        self._label = label
        self._began = time.monotonic()
        self._shown = 0.0

    def log(self, step: int, **metrics: float) -> None:
        """Append metrics of a step; names may hold `/` by way of `**{"loss/kl": 0.1}`."""
        line = {
            "step": step,
            "time": time.time(),
            "metrics": {k: float(v) for k, v in metrics.items()},
        }
        with self.curves.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        """Tell a person how far the work is: a live line on a terminal, else a line each 10 s."""
        now = time.monotonic()
        tty = sys.stderr.isatty()
        if done < total and now - self._shown < (0.2 if tty else 10.0):
            return
        self._shown = now
        seconds = now - self._began
        eta = seconds / done * (total - done) if done else math.nan
        facts = "".join(f" · {name} {value:.4g}" for name, value in shown.items())
        text = f"{self._label} {unit} {done}/{total} · {seconds:.0f}s, {eta:.0f}s to go{facts}"
        _show(sys.stderr, text, live=tty, last=done >= total)


def _show(stream: TextIO, text: str, *, live: bool, last: bool) -> None:
    stream.write(f"\r\x1b[2K{text}" if live else text)
    if last or not live:
        stream.write("\n")
    stream.flush()


def read_curves(path: Path) -> Iterator[Point]:
    """Yield the points of a curves file; of a step logged twice, the later. A torn last line
    (the writer was killed) is left out."""
    latest: dict[tuple[str, int], Point] = {}
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        for name, value in entry["metrics"].items():
            latest[name, entry["step"]] = Point(entry["step"], entry["time"], name, value)
    yield from latest.values()
