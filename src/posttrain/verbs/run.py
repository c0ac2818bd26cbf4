"""`posttrain run`: check, run a graph here through kfp.local, track it, show the verdict.

Run again after a kill or a change: what is finished and unchanged is not done again.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from posttrain.artifacts import write_json
from posttrain.check import GRAPHS, problems, report
from posttrain.cli import DEFAULT_STORE, layers_of, tracking_uri
from posttrain.command_line import Parser
from posttrain.costs.meter import BUDGET, budget_of_the_run, checked_prices
from posttrain.costs.prices import VARIABLE
from posttrain.rehearsal import SUFFIX, rehearsal_overrides
from posttrain.verbs.explain import records


def main(argv: Sequence[str]) -> int:
    """Run the graph; 0 when every task is done, whatever the gate's verdict."""
    parser = Parser(prog="posttrain run", description=__doc__)
    parser.add_argument("--recipe", default="demo", help="name of a shipped recipe, or a YAML file")
    parser.add_argument("--out", type=Path, help="run folder [runs/RECIPE]")
    parser.add_argument("--seed", type=int, help="[the recipe's]")
    parser.add_argument("--overrides", default="", help="JSON: sections laid over the recipe's")
    parser.add_argument("--graph", choices=sorted(GRAPHS), default="posttraining")
    parser.add_argument("--store", type=Path, default=Path(DEFAULT_STORE))
    parser.add_argument("--budget", type=float, default=0.0, help="stop when it is spent [none]")
    parser.add_argument("--prices", type=Path, help="YAML: what an hour costs [POSTTRAIN_PRICES]")
    parser.add_argument("--rehearse", action="store_true", help="first run it with tiny settings")
    parser.add_argument("--image", default="", help="each task in a container of it [a process]")
    parser.add_argument("--json", action="store_true", help="print summary.json at the end")
    given = parser.parse_args(list(argv))
    layers = layers_of(given.recipe, given.overrides)
    out = given.out or Path("runs") / Path(given.recipe).stem
    if not report(problems(layers, given.seed, given.graph, out, None)):
        return 2
    hand_on(given.budget, given.prices)
    seed = given.seed if given.seed is not None else next((x.seed for x in layers if x.seed), 0)
    if given.rehearse and (code := rehearse(given, out, seed)):
        return code
    began = time.time()
    launch_record = {
        "id": uuid.uuid4().hex,
        "name": f"{given.graph}-{Path(given.recipe).stem}-seed{seed}",
        "recipe": given.recipe,
        "seed": seed,
        "graph": given.graph,
        "started": began,
    }
    write_json(out / "launch.json", launch_record)
    code = launch_tracked(given, out, seed)
    if code == 0:
        conclude(out, began, given.graph, as_json=given.json)
    return code


def hand_on(budget: float, prices: Path | None) -> None:
    """Give the tasks' processes the budget and the prices that it is measured by."""
    table = checked_prices(budget or budget_of_the_run(), prices)
    if table:
        os.environ[VARIABLE] = table.model_dump_json()
    if budget:
        os.environ[BUDGET] = str(budget)


def rehearse(given: argparse.Namespace, out: Path, seed: int) -> int:
    """Run the same graph with tiny settings in a folder beside; nothing of it goes to MLflow."""
    from posttrain.launch import launch

    overrides = rehearsal_overrides(given.recipe, given.overrides, GRAPHS[given.graph])
    beside = out.with_name(out.name + SUFFIX)
    began = time.monotonic()
    store = given.store.absolute()
    code = launch(given.recipe, beside, seed, overrides, store, given.graph, given.image)
    word = "passed" if code == 0 else f"failed with exit code {code}"
    print(f"rehearsal in {beside} {word} after {time.monotonic() - began:.0f}s", file=sys.stderr)
    return code


def launch_tracked(given: argparse.Namespace, out: Path, seed: int) -> int:
    """Run the graph while its metrics go to MLflow."""
    from posttrain.launch import launch
    from posttrain.tracking import live

    with live(out, tracking_uri()):
        return launch(
            given.recipe,
            out,
            seed,
            given.overrides,
            given.store.absolute(),
            given.graph,
            given.image,
        )


def conclude(out: Path, began: float, graph: str, *, as_json: bool) -> None:
    """Write the report with times, close the MLflow run, and print the verdict; a graph without
    a report has none."""
    from posttrain.report.finish import finish, verdict_screen
    from posttrain.tracking import ship

    found = [r for r in records(out) if r["task"] in GRAPHS[graph]]
    page = next((r["outputs"]["page"]["path"] for r in found if r["task"] == "report"), None)
    if page is None:
        print(ship(out, tracking_uri()))
        return
    wall = time.time() - began
    summary = finish(Path(page), found, out, wall_seconds=wall)
    message = ship(out, tracking_uri())
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(summary, indent=2) if as_json else verdict_screen(summary))
        if not as_json:
            print(message)
