"""The cells of an arena: one method, one seed, one ground; each a run of `rl` and of `benchmark`.

Everything goes through the store, so an arena that was killed, or that gained a method, does only
what is missing.
"""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.arena.config import START, TEACHER, Arena, layer
from posttrain.artifacts import write_json
from posttrain.cli import layers_of
from posttrain.config import Recipe, resolve
from posttrain.errors import PosttrainError
from posttrain.execution import Request, execute, record_path
from posttrain.stages import TASKS, load_stage

FAILURE = "failure.json"

PORTS: Mapping[str, Mapping[str, str]] = {
    "raw": {},
    "base": {},
    "curate": {"rows": "raw.rows"},
    "sft": {"policy": "base.policy", "demonstrations": "curate.demonstrations"},
    "reject": {"policy": "sft.trained", "prompts": "curate.prompts"},
    "benchmark_sft": {"policy": "sft.trained", "evaluation": "curate.evaluation"},
    "rl": {
        "policy": "sft.trained",
        "prompts": "curate.prompts",
        "demonstrations": "reject.demonstrations",
    },
    "benchmark_rl": {"policy": "rl.trained", "evaluation": "curate.evaluation"},
}
"""Task -> input port -> the task and output that fill it, as in the whole graph."""


class Cell(NamedTuple):
    """A method with a seed on a ground; without a method, the start that all share, or `teacher`,
    what they may be shown."""

    ground: str
    method: str = ""
    seed: int = 0
    teacher: bool = False

    @property
    def folder(self) -> str:
        """Where its records are, below the arena's own folder."""
        if self.method:
            return f"{self.ground}/{self.method}/{self.seed}"
        return f"{self.ground}/{'teacher' if self.teacher else 'start'}"


def cells(arena: Arena) -> list[Cell]:
    """All cells, seed by seed, so that an unfinished arena has compared like with like."""
    return [
        Cell(ground, method, seed)
        for seed in arena.seeds
        for ground in arena.grounds
        for method in arena.meeting(ground)
    ]


def shared(arena: Arena) -> list[Cell]:
    """What is there before any method is: each ground's start, and its teacher if it has one."""
    found = []
    for name, ground in arena.grounds.items():
        found.append(Cell(name))
        if ground.teacher:
            found.append(Cell(name, teacher=True))
    return found


def tasks_of(arena: Arena, cell: Cell) -> list[str]:
    """What is run for a cell, in order."""
    if cell.method:
        return ["rl", "benchmark_rl"]
    if cell.teacher:
        return [*TEACHER]
    taught = arena.grounds[cell.ground].teacher
    return [task for task in (*START, "benchmark_sft") if not (taught and task == "reject")]


def play(arena: Arena, cell: Cell, out: Path, store: Path) -> None:
    """Run the tasks of a cell. A fault of the method's own is written down and stops nobody."""
    home = out / cell.folder
    started = {"id": uuid.uuid4().hex, "name": cell.folder.replace("/", "-"), "seed": cell.seed}
    write_json(home / "launch.json", started | {"started": time.time()})
    (home / FAILURE).unlink(missing_ok=True)
    try:
        for task in tasks_of(arena, cell):
            execute(request(arena, cell, task, out, store))
    except PosttrainError as error:
        if not cell.method or error.exit_code == 75:
            raise
        write_json(home / FAILURE, {"faults": [str(fault) for fault in error.faults]})


def request(arena: Arena, cell: Cell, task: str, out: Path, store: Path) -> Request:
    """One task of a cell."""
    stage = load_stage(TASKS[task])
    home, start = out / cell.folder, out / Cell(cell.ground).folder
    where = {name: start if name in START and cell.method else home for name in PORTS}
    layers = layers_for(arena, cell)
    flags = {"seed": cell.seed} if task == "rl" else {}
    inputs = {
        port: where[source.split(".")[0]] / source.replace(".", "/")
        for port, source in PORTS[task].items()
    }
    if task == "rl" and arena.grounds[cell.ground].teacher:
        teacher = out / Cell(cell.ground, teacher=True).folder
        inputs["demonstrations"] = teacher / "curate/demonstrations"
    return Request(
        stage=stage,
        task=task,
        config=resolve(stage.config, stage.name, task, layers, flags),
        inputs=inputs,
        outputs={p.name: home / task / p.name for p in stage.outputs},
        store=store,
        run_folder=home,
        recipe=arena.recipe,
    )


def layers_for(arena: Arena, cell: Cell) -> list[Recipe]:
    """The recipe, the arena's options, the ground's, the budget, and the method's own."""
    ground = arena.grounds[cell.ground]
    suites: Mapping[str, Any] = {"suites": [{"name": ground.suite, "samples": arena.samples}]}
    budget = {"max_rollouts": arena.rollouts, "max_seconds": arena.seconds}
    own = {"method": cell.method, **arena.methods.get(cell.method, {})}
    return [
        *layers_of(arena.recipe, ""),
        # No judge is trained here, so the verifier alone must sift what `external` shows.
        layer("arena", {"benchmark": suites, "reject": {"verifier": True}}),
        layer("arena:options", arena.options),
        layer(f"arena:grounds.{cell.ground}", ground.options),
        layer(f"arena:grounds.{cell.ground}.teacher", ground.teacher if cell.teacher else {}),
        layer(f"arena:methods.{cell.method}", {"rl": {**budget, **own}} if cell.method else {}),
    ]


def record_of(out: Path, cell: Cell, task: str) -> Path:
    """The record of a finished task of a cell."""
    return record_path(out / cell.folder, task)
