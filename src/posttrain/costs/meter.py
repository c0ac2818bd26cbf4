"""Keeps the account of the stage at work, and stops it when the run's budget is spent."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.costs.account import Spent, spent
from posttrain.costs.attempts import BEAT_SECONDS, attempts, begun, keep
from posttrain.costs.prices import VARIABLE, Prices, read_prices
from posttrain.costs.resources import seen
from posttrain.costs.tokens import judge_money, tokens_of
from posttrain.errors import ConfigError, Fault, PosttrainError
from posttrain.interruption import ask

BUDGET = "POSTTRAIN_BUDGET"
SERVERS = ("vllm_server",)
"""Engines whose tokens another machine draws."""


class Meter:
    """The account of one process; `budget` is the whole run's, in the currency of the prices."""

    def __init__(
        self, run_folder: Path, task: str, stage: str, budget: float, prices: Prices | None
    ) -> None:
        self._folder = run_folder
        self._budget = budget
        self._prices = prices
        self._attempt = begun(task, stage, *seen())
        self._lock = threading.Lock()

    def conclude(self, record: Mapping[str, Any]) -> dict[str, float]:
        """Add what the finished task's record tells, and return what the task has cost this run
        in all its attempts."""
        attempt = self._attempt
        if record["cached"]:
            told: dict[str, Any] = {"state": "cached", "saved_seconds": record["seconds"]}
        else:
            tokens = tokens_of(attempt.stage, record["report"])
            engine = record["config"].get("engine")
            name = engine.get("name") if isinstance(engine, Mapping) else engine
            told = {
                "state": "done",
                "generated_tokens": tokens.generated,
                "trained_tokens": tokens.trained,
                "server_tokens": tokens.generated if name in SERVERS else 0,
                "judge_money": judge_money(record["report"]),
            }
        self.note(code=0, **told)
        own = [a for a in attempts(self._folder) if a.task == attempt.task]
        return spent(own, self._prices).numbers()

    def note(self, **changes: Any) -> None:
        """Bring the account up to now; a disk that refuses it at the moment stops no stage."""
        with self._lock:
            self._attempt = self._attempt.model_copy(update={"updated": time.time(), **changes})
            try:
                keep(self._folder, self._attempt)
            except OSError as error:
                print(f"costs: not written for now: {error}", file=sys.stderr)

    def close(self) -> None:
        """The work is over; a process that only helped another has no record to conclude with."""
        state = self._attempt.state
        self.note(code=0, state="done" if state == "working" else state)

    def over(self) -> ConfigError | None:
        """The error that ends the run, once its budget is spent."""
        if not self._budget or self._prices is None:
            return None
        now = spent(attempts(self._folder), self._prices)
        if now.money is None or now.money < self._budget:
            return None
        return budget_spent(now, self._budget, self._prices.currency, self._folder)

    def beat(self, done: threading.Event) -> None:
        """Until done, keep the account and watch the budget."""
        while not done.wait(BEAT_SECONDS):
            self.note()
            if error := self.over():
                ask(error)


def budget_spent(now: Spent, budget: float, currency: str, run_folder: Path) -> ConfigError:
    """What the user is told; the work is kept."""
    return ConfigError(
        Fault(
            "budget spent",
            str(run_folder),
            f"the run has spent {now.money:.4f} of {budget:.4f} {currency}".rstrip(),
            "a larger budget goes on where it stopped; `posttrain cost` tells what took it",
        )
    )


@contextmanager
def metered(
    run_folder: Path, task: str, stage: str, budget: float = 0.0, prices: Path | None = None
) -> Iterator[Meter]:
    """Keep the account of the work inside; raise ConfigError if the budget is spent already, or
    has no prices to be measured by.

    Under torchrun one process of each machine keeps it, and the first of all watches the budget.
    """
    budget = budget or budget_of_the_run()
    table = checked_prices(budget, prices)
    leads = os.environ.get("RANK", "0") == "0"
    meter = Meter(run_folder, task, stage, budget if leads else 0.0, table)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        yield meter
        return
    if error := meter.over():
        raise error
    done = threading.Event()
    thread = threading.Thread(target=meter.beat, args=(done,), name="costs", daemon=True)
    meter.note()
    thread.start()
    try:
        yield meter
        meter.close()
    except BaseException as error:
        code = error.exit_code if isinstance(error, PosttrainError) else 1
        meter.note(state="failed", code=code)
        raise
    finally:
        done.set()
        thread.join()


def budget_of_the_run() -> float:
    """POSTTRAIN_BUDGET, by which a launcher hands a budget to its tasks; 0 without one."""
    text = os.environ.get(BUDGET) or "0"
    try:
        return float(text)
    except ValueError:
        mend = "give a number, in the currency of the prices"
        raise ConfigError(Fault(f"bad budget `{text}`", BUDGET, "no number", mend)) from None


def checked_prices(budget: float, given: Path | None = None) -> Prices | None:
    """The price table; ConfigError where there is a budget and nothing to measure it by."""
    table = read_prices(given)
    if not budget or (table and table != Prices(currency=table.currency)):
        return table
    raise ConfigError(
        Fault(
            f"a budget of {budget:g} without prices",
            "--budget",
            "nothing says what an hour of this machine costs, so no budget is ever spent",
            f"name a price table by --prices or {VARIABLE}",
        )
    )
