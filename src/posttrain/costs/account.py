"""Sums over attempts: seconds, tokens, and money where the table has a price for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from posttrain.costs.attempts import Attempt
from posttrain.costs.prices import Prices

HOUR = 3600.0


class Spent(BaseModel):
    """What attempts spent. Money is None without a table; `unpriced` names kinds of accelerators
    that the table does not know. `saved_*` is what the store made unnecessary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: int = 0
    seconds: float = 0.0
    accelerator_seconds: float = 0.0
    core_seconds: float = 0.0
    generated_tokens: int = 0
    trained_tokens: int = 0
    saved_seconds: float = 0.0
    saved_accelerator_seconds: float = 0.0
    money: float | None = None
    saved_money: float | None = None
    unpriced: list[str] = []

    def numbers(self) -> dict[str, float]:
        """What a tracker takes: every number that is known."""
        plain = self.model_dump(exclude={"unpriced"}, exclude_none=True)
        return {name: float(value) for name, value in plain.items()}


def spent(found: Iterable[Attempt], prices: Prices | None) -> Spent:
    """The sum over attempts, those that failed or were killed included."""
    found = list(found)
    known = {a.kind for a in found if a.accelerators}
    return Spent(
        attempts=len(found),
        seconds=sum(a.seconds for a in found),
        accelerator_seconds=sum(a.accelerators * a.seconds for a in found),
        core_seconds=sum(a.cores * a.seconds for a in found),
        generated_tokens=sum(a.generated_tokens for a in found),
        trained_tokens=sum(a.trained_tokens for a in found),
        saved_seconds=sum(a.saved_seconds for a in found),
        saved_accelerator_seconds=sum(a.accelerators * a.saved_seconds for a in found),
        money=sum(money(a, a.seconds, prices) for a in found) if prices else None,
        saved_money=sum(held(a, a.saved_seconds, prices) for a in found) if prices else None,
        unpriced=sorted(k for k in known if prices and prices.accelerator_price(k) is None),
    )


def money(attempt: Attempt, seconds: float, prices: Prices) -> float:
    """The price of an attempt that lasted so long."""
    served = attempt.server_tokens / 1000 * prices.server_1k_tokens
    return held(attempt, seconds, prices) + served + attempt.judge_money


def held(attempt: Attempt, seconds: float, prices: Prices) -> float:
    """The price of holding an attempt's resources for so long."""
    accelerator = prices.accelerator_price(attempt.kind) or 0.0
    hourly = attempt.accelerators * accelerator + attempt.cores * prices.core_hour
    return hourly * seconds / HOUR


def by_task(found: Iterable[Attempt], prices: Prices | None) -> dict[str, Spent]:
    """Task -> its sum, in the order of their first attempts."""
    tasks: dict[str, list[Attempt]] = {}
    for attempt in found:
        tasks.setdefault(attempt.task, []).append(attempt)
    return {task: spent(own, prices) for task, own in tasks.items()}


class Gain(BaseModel):
    """Points of pass@1 gained over the first policy of the ladder, and what one of them took:
    `money` and `seconds` as spent in this run folder; `unrestored_*` had the store been empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    policy: str
    start: str
    points: float
    money: float | None = None
    accelerator_seconds: float | None = None
    seconds: float | None = None
    unrestored_seconds: float | None = None
    unrestored_money: float | None = None


def gain(run_folder: Path, found: Sequence[Attempt], prices: Prices | None) -> Gain | None:
    """What a point cost; None where no report of a run tells of two policies on one suite."""
    ladder, suite = ladder_of(run_folder)
    if len(ladder) < 2:
        return None
    start = "base" if "base" in ladder else next(iter(ladder))
    policy = next(p for p in ("rl", "rejected_sft", "sft", *ladder) if p in ladder and p != start)
    points = 100 * (ladder[policy] - ladder[start])
    told = Gain(suite=suite, policy=policy, start=start, points=points)
    if points <= 0:
        return told
    total = spent(found, prices)
    last = {a.task: a for a in found if a.state in ("done", "cached")}.values()
    fresh = {a.task: a.saved_seconds if a.state == "cached" else a.seconds for a in last}
    return told.model_copy(
        update={
            "seconds": total.seconds / points,
            "accelerator_seconds": total.accelerator_seconds / points,
            "money": None if total.money is None else total.money / points,
            "unrestored_seconds": sum(fresh.values()) / points,
            "unrestored_money": sum(money(a, fresh[a.task], prices) for a in last) / points
            if prices
            else None,
        }
    )


def ladder_of(run_folder: Path) -> tuple[Mapping[str, float], str]:
    """Policy -> pass@1, and the suite, as the run's report stage found them."""
    try:
        text = (run_folder / "stages" / "report.json").read_text(encoding="utf-8")
        report: Mapping[str, Any] = json.loads(text)["report"]
        return report["pass_at_1"], report["suite"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return {}, ""
