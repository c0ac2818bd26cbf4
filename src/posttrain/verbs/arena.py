"""`posttrain arena FILE`: run methods under one budget and say, with intervals, which helped.

Run again after a kill or a change: what is finished and unchanged is not done again.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from posttrain.arena.cells import Cell, cells, play, request, shared
from posttrain.arena.config import Arena, read_arena
from posttrain.artifacts import write_json
from posttrain.cli import DEFAULT_STORE, tracking_uri
from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault, PosttrainError


def main(argv: Sequence[str]) -> int:
    """Play every cell that is missing, then write `arena.json`, `arena.md` and `arena.html`."""
    parser = Parser(prog="posttrain arena", description=__doc__)
    parser.add_argument("file", type=Path, help="YAML: methods, grounds, seeds, budget")
    parser.add_argument("--out", type=Path, help="arena folder [runs/NAME]")
    parser.add_argument("--store", type=Path, default=Path(DEFAULT_STORE))
    parser.add_argument("--workers", type=int, default=0, help="processes [one a core, 2 at most]")
    parser.add_argument("--tracking", choices=("on", "off"), default="on")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    given = parser.parse_args(list(argv))
    arena = read_arena(given.file)
    out = given.out or Path("runs") / given.file.stem
    check(arena, out, given.store)
    tracked = given.tracking == "on"
    for cell in shared(arena):
        play_quietly(arena, cell, out, given.store, tracked=tracked)
    play_all(arena, out, given.store, workers_of(given.workers), tracked=tracked)
    conclude(arena, out, as_json=given.json)
    return 0


def check(arena: Arena, out: Path, store: Path) -> None:
    """Resolve the options of every cell before any of them runs; raise all faults at once."""
    from posttrain.rl.parts import build_parts

    faults: list[Fault] = []
    for cell in cells(arena):
        if cell.seed == arena.seeds[0]:
            try:
                config = request(arena, cell, "rl", out, store).config
                build_parts(config, has_judge=False, has_demonstrations=True)  # type: ignore[arg-type]
            except PosttrainError as error:
                faults += error.faults
    if faults:
        raise ConfigError(*faults)


def workers_of(wanted: int) -> int:
    """Cells at a time; each has one thread."""
    return wanted or min(2, os.cpu_count() or 1)


def play_all(arena: Arena, out: Path, store: Path, workers: int, *, tracked: bool) -> None:
    """Play the cells, several at a time, and tell of each."""
    left = cells(arena)
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        told: dict[Future[None], Cell] = {
            pool.submit(play_quietly, arena, cell, out, store, tracked=tracked): cell
            for cell in left
        }
        for done, future in enumerate(as_completed(told), start=1):
            future.result()
            print(f"{done}/{len(left)} {told[future].folder}", file=sys.stderr, flush=True)


def play_quietly(arena: Arena, cell: Cell, out: Path, store: Path, *, tracked: bool) -> None:
    """Play one cell with its output in a log, and send its numbers to MLflow."""
    from posttrain.tracking import ship

    home = out / cell.folder
    home.mkdir(parents=True, exist_ok=True)
    with (home / "log.txt").open("w", encoding="utf-8") as log, contextlib.redirect_stderr(log):
        play(arena, cell, out, store)
        if tracked:
            print(ship(home, tracking_uri()), file=log)


def conclude(arena: Arena, out: Path, *, as_json: bool) -> None:
    """Write the table and show it."""
    from posttrain.arena.page import markdown, render
    from posttrain.arena.table import rows

    found = rows(arena, out)
    dumped = [row.model_dump(mode="json") for row in found]
    write_json(out / "arena.json", {"arena": arena.model_dump(mode="json"), "rows": dumped})
    (out / "arena.md").write_text(markdown(arena, found), encoding="utf-8")
    (out / "arena.html").write_text(render(arena, found), encoding="utf-8")
    print(json.dumps(dumped, indent=2) if as_json else markdown(arena, found))
    print(f"{out / 'arena.html'}", file=sys.stderr)
