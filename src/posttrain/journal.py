"""The journal of one running stage: metrics by step, progress, and a scratch folder.

A journal is what a stage leaves behind that is not its result. Metrics are lines in
`curves.jsonl`, on disk before anything is sent anywhere; `scratch` outlives a kill, so
checkpoints go there. When a resumed stage logs a step again, the later line counts.
"""

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from posttrain.artifacts import CURVES
from posttrain.durable import synced
from posttrain.heartbeat import beat
from posttrain.interruption import asked, heed


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
        _end_torn_line(self.curves)
        self._label = label
        self._began = time.monotonic()
        self._shown = 0.0

    def log(self, step: int, **metrics: float) -> None:
        """Append metrics of a step; names may hold `/` by way of `**{"loss/kl": 0.1}`."""
        beat()
        line = {
            "step": step,
            "time": time.time(),
            "metrics": {k: float(v) for k, v in metrics.items()},
        }
        with self.curves.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def stopping(self) -> bool:
        """Whether somebody asked the stage to stop: it shall write a checkpoint, and `pause`."""
        return asked() is not None

    def pause(self) -> None:
        """Raise what the stage was asked to stop with, if it was; what is done is on disk now."""
        heed()

    def sync(self) -> None:
        """Have the curves on disk, before a checkpoint from which their steps are not repeated."""
        if self.curves.is_file():
            synced(self.curves)

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        """Tell a person how far the work is: a live line on a terminal, else a line each 10 s."""
        beat()
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


def _end_torn_line(path: Path) -> None:
    """What a killed writer left of a line must not swallow the first line of the next one."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")


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
