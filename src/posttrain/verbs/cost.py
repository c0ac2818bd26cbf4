"""`posttrain cost RUN`: what every task of a run spent, failed and killed attempts included.

RUN is a run folder, such as runs/demo, and its account is exact to a few seconds. With `--to` it is
a run on a cluster, of which the server tells the pods' seconds (Argo: of every resource that they
held); tokens and savings are in the run's folder on the store, and in MLflow as `cost/...`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.cluster import Run, Task, add_cluster, cluster_of
from posttrain.command_line import Parser
from posttrain.costs.account import HOUR, Gain, Spent, by_task, gain, spent
from posttrain.costs.attempts import attempts
from posttrain.costs.prices import Prices, read_prices
from posttrain.errors import ConfigError, Fault

NO_ACCELERATORS = ("cpu", "memory", "ephemeral-storage")


def main(argv: Sequence[str]) -> int:
    """Print a table and the cost of a point, or both as JSON."""
    parser = Parser(prog="posttrain cost", description=__doc__)
    parser.add_argument("run", metavar="RUN")
    add_cluster(parser, default=None)
    parser.add_argument("--prices", type=Path, help="YAML: what an hour costs [POSTTRAIN_PRICES]")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(list(argv))
    prices = read_prices(given.prices)
    if given.to:
        rows, told = of_cluster(cluster_of(given).run(given.run), prices), None
    else:
        rows, told = of_folder(Path(given.run), prices)
    if given.json:
        found = {
            "currency": prices.currency if prices else "",
            "tasks": {name: row.model_dump() for name, row in rows.items() if name},
            "run": rows[""].model_dump(),
            "gain": told.model_dump() if told else None,
        }
        print(json.dumps(found, indent=2))
        return 0
    print(table(rows, prices))
    if told:
        print(sentence(told, prices))
    return 0


def of_folder(folder: Path, prices: Prices | None) -> tuple[dict[str, Spent], Gain | None]:
    """Task -> its sum, the run's under the empty name; and what a point took."""
    found = attempts(folder)
    if not found:
        mend = "give a run folder, such as runs/demo, or name a cluster with --to"
        raise ConfigError(Fault("no account", str(folder), "nothing has run there", mend))
    return by_task(found, prices) | {"": spent(found, prices)}, gain(folder, found, prices)


def of_cluster(run: Run, prices: Prices | None) -> dict[str, Spent]:
    """The same from what a cluster's server counts."""
    rows = {task.name: held(task, prices) for task in run.tasks}
    summed: dict[str, Any] = {}
    for row in rows.values():
        for name, value in row.numbers().items():
            summed[name] = summed.get(name, 0.0) + value
    unpriced = sorted({kind for row in rows.values() for kind in row.unpriced})
    return rows | {"": Spent.model_validate(summed | {"unpriced": unpriced})}


def held(task: Task, prices: Prices | None) -> Spent:
    """What the pods of one task held; the kind of an accelerator is its resource's name."""
    devices = {kind: s for kind, s in task.held.items() if kind not in NO_ACCELERATORS}
    cores = task.held.get("cpu", 0.0)
    cost, unpriced = 0.0, []
    for kind, seconds in devices.items() if prices else ():
        price = prices.accelerator_price(kind) if prices else None
        cost += (price or 0.0) * seconds / HOUR
        unpriced += [kind] if price is None else []
    return Spent(
        attempts=task.retries + 1,
        seconds=task.seconds or 0.0,
        accelerator_seconds=sum(devices.values()),
        core_seconds=cores,
        money=cost + cores * prices.core_hour / HOUR if prices else None,
        unpriced=unpriced,
    )


def table(rows: Mapping[str, Spent], prices: Prices | None) -> str:
    """A row a task, the run last; money where there are prices."""
    head = ["task", "attempts", "seconds", "accelerator-s", "core-s", "drawn", "learnt", "saved s"]
    head += [prices.currency or "price", "saved"] if prices else []
    cells = [head, *([name or "the run", *columns(row)] for name, row in rows.items())]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    if rows[""].unpriced:
        lines.append(f"without a price: {', '.join(rows[''].unpriced)}")
    return "\n".join(lines)


def columns(row: Spent) -> list[str]:
    """The numbers of a row."""
    shown = [
        str(row.attempts),
        *(f"{s:.1f}" for s in (row.seconds, row.accelerator_seconds, row.core_seconds)),
        str(row.generated_tokens),
        str(row.trained_tokens),
        f"{row.saved_seconds:.1f}",
    ]
    return shown + [
        f"{m:.4f}"
        for m in (row.money, row.saved_money or 0.0)
        if row.money is not None and m is not None
    ]


def sentence(told: Gain, prices: Prices | None) -> str:
    """What a point of pass@1 took."""
    gained = (
        f"{told.points:.1f} points of pass@1 on {told.suite} by {told.policy} over {told.start}"
    )
    if told.seconds is None or told.accelerator_seconds is None:
        return f"{gained}: no gain to divide by"
    if prices is None or told.money is None or told.unrestored_money is None:
        return (
            f"{gained}: a point took {told.seconds:.1f} s and {told.accelerator_seconds:.1f}"
            f" accelerator-s, {told.unrestored_seconds:.1f} s had the store been empty"
        )
    return (
        f"{gained}: a point cost {told.money:.4f} {prices.currency},"
        f" {told.unrestored_money:.4f} had the store been empty"
    )
