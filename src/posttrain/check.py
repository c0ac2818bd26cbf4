"""Preflight: everything that can be known to fail before any work, told all at once.

`posttrain check` runs it alone; `posttrain run` runs it first.
"""

import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from posttrain import sandbox
from posttrain.cli import DEFAULT_STORE, layers_of, tracking_uri
from posttrain.command_line import Parser
from posttrain.config import Recipe, resolve
from posttrain.errors import Fault, PosttrainError
from posttrain.stages import TASKS, load_stage

DISK_NEEDED = 2 * 2**30
REACH_SECONDS = 3.0
BYTES_PER_PARAMETER = 16
"""fp32 weights, gradients and two Adam moments; activations come on top."""

GRAPHS: dict[str, tuple[str, ...]] = {
    "posttraining": (
        "raw",
        "base",
        "curate",
        "sft",
        "reward_model",
        "reject",
        "rejected_sft",
        "rl",
        "best_of_n",
        "benchmark_base",
        "benchmark_sft",
        "benchmark_rejected_sft",
        "benchmark_rl",
        "gate",
        "report",
    ),
    "curation": ("raw", "curate_learn", "curate_map", "curate_reduce"),
    "nightly_eval": (
        "base",
        "judge",
        "raw",
        "curate",
        "best_of_n",
        "benchmark_rl",
        "gate",
        "report",
    ),
}


def problems(
    layers: Sequence[Recipe], seed: int | None, graph: str, run_folder: Path, memory: float | None
) -> list[Fault]:
    """Every fault of recipe, plug-ins, data, model, memory, disk and services."""
    flags = {} if seed is None else {"seed": seed}
    faults: list[Fault] = []
    configs: dict[str, Any] = {}
    for task in GRAPHS[graph]:
        stage = load_stage(TASKS[task])
        try:
            configs[task] = resolve(stage.config, stage.name, task, list(layers), flags)
            if stage.preflight:
                faults += list(stage.preflight(configs[task]))
        except PosttrainError as error:
            faults += error.faults
    if "base" in configs:
        faults += list(model_faults(configs["base"].model, memory))
    services = [*service_faults(tracking_uri()), *sandbox_faults(faults)]
    return [*dict.fromkeys(faults), *disk_faults(run_folder), *services]


def model_faults(model: str, memory_gib: float | None) -> Iterator[Fault]:
    """Memory of training a local base model against the pool."""
    folder = Path(__file__).parent / "base/tiny" if model == "embedded" else Path(model)
    if not folder.is_dir():
        return
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    needed = weights / 4 * BYTES_PER_PARAMETER / 2**30
    pool = memory_gib if memory_gib is not None else available_memory() / 2**30
    if needed > pool:
        yield Fault(
            f"the model needs about {needed:.1f} GiB to train",
            f"base.model: {model}",
            f"the pool has {pool:.1f} GiB; weights, gradients and Adam take"
            f" {BYTES_PER_PARAMETER} bytes a parameter, activations not counted",
            "take a smaller model, LoRA, or a larger pool (--memory-gib)",
        )


def available_memory() -> int:
    """Bytes of memory that this machine has in all."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def disk_faults(run_folder: Path) -> Iterator[Fault]:
    """Room and permission where the run and the store will be."""
    for place in (run_folder, Path(os.environ.get("POSTTRAIN_STORE") or DEFAULT_STORE)):
        parent = next(p for p in [place, *place.absolute().parents] if p.exists())
        if not os.access(parent, os.W_OK):
            yield Fault("cannot write", str(place), f"{parent} is not writable", "choose another")
        free = shutil.disk_usage(parent).free
        if free < DISK_NEEDED:
            yield Fault(
                "too little disk",
                str(place),
                f"{free / 2**30:.1f} GiB are free, a run may need {DISK_NEEDED / 2**30:.0f}",
                "free some room, or point POSTTRAIN_STORE and --out elsewhere",
            )


def service_faults(uri: str) -> Iterator[Fault]:
    """A tracking server that does not answer is worth saying, though it stops nothing."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        return
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        socket.create_connection((parsed.hostname, port), timeout=REACH_SECONDS).close()
    except OSError as error:
        yield Fault(
            "warning: the tracking server does not answer",
            f"MLFLOW_TRACKING_URI={uri}",
            str(error),
            "start it; until then metrics are kept in the run folder (`posttrain track`)",
        )


def sandbox_faults(told: Sequence[Fault]) -> Iterator[Fault]:
    """A sandbox service that does not answer, unless a task that runs code has told of it."""
    if sandbox.service_named():
        for fault in sandbox.faults():
            if fault not in told:
                yield replace(fault, what=f"warning: {fault.what}")


def report(faults: Sequence[Fault]) -> bool:
    """Print every fault; return whether the run may go on (warnings do not stop it)."""
    for fault in faults:
        prefix = "" if fault.what.startswith("warning") else "error: "
        print(f"{prefix}{fault}", file=sys.stderr)
    return all(fault.what.startswith("warning") for fault in faults)


def main(argv: Sequence[str]) -> int:
    """Check a recipe against this machine; exit code 2 if anything would fail."""
    parser = Parser(prog="posttrain check", description=__doc__)
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--overrides", default="", help="JSON: sections laid over the recipe's")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--graph", choices=sorted(GRAPHS), default="posttraining")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--memory-gib", type=float, help="memory of the pool [this machine's]")
    given = parser.parse_args(list(argv))
    layers = layers_of(given.recipe, given.overrides)
    if not report(problems(layers, given.seed, given.graph, given.out, given.memory_gib)):
        return 2
    print(f"recipe {given.recipe}: ready to run")
    return 0
