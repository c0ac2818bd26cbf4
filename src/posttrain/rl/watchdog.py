"""The watchdog: keeps a generator at work, whatever becomes of its process."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.errors import Fault, TransientError
from posttrain.rl.generator import BEAT_SECONDS, Answer, Generator, Job, Ticket
from posttrain.rl.published import publish
from posttrain.rl.rollout import Rollout
from posttrain.rl.strategies import Ask

if TYPE_CHECKING:
    from torch import Tensor


class Watchdog:
    """Asks one generator after another; a ticket stays open until one of them has answered it.

    Counted since the last `publish`: `waited` and `idle`, seconds in which this process and the
    generator had nothing to do, and `replaced` generators.
    """

    def __init__(self, job: Job, hung_seconds: float, max_replacements: int) -> None:
        self.job, self.folder = job, Path(job.published)
        self.hung_seconds, self.max_replacements = hung_seconds, max_replacements
        # A trainer that was killed may have published versions that never came to be.
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.waited, self.idle, self.replaced = 0.0, 0.0, 0
        self._open: dict[int, Ticket] = {}
        self._asked, self._failures, self._version = 0, 0, -1
        self._generator = Generator(job)

    def publish(self, weights: "Mapping[str, Tensor]", version: int) -> None:
        """Have what is begun from now on written by these."""
        publish(weights, self.folder, version)
        self._version = version
        self.waited, self.idle, self.replaced = 0.0, 0.0, 0

    def ask(self, asks: Sequence[Ask], shown: Mapping[str, Rollout]) -> int:
        """Open a ticket; returns its number."""
        self._asked += 1
        ticket = Ticket(self._asked, self._version, [*asks], shown)
        self._open[ticket.number] = ticket
        self._generator.ask(ticket)
        return ticket.number

    def answer(self, *, wait: bool) -> Answer | None:
        """The answer to the oldest open ticket; None if there is none yet, or nothing is open.

        Raises TransientError when generators go on dying, and what a generator passes on.
        """
        began = time.monotonic()
        while self._open:
            found = self._generator.answer(BEAT_SECONDS if wait else 0)
            if found is not None:
                del self._open[found.number]
                self._failures = 0
                self.idle += found.idle
                self.waited += time.monotonic() - began
                return found
            why = self._generator.lost(self.hung_seconds, began)
            if why:
                self._replace(why)
            elif not wait:
                return None
        return None

    def close(self) -> None:
        """End the generator and delete what was published."""
        self._generator.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _replace(self, why: str) -> None:
        self._generator.close()
        if self._failures >= self.max_replacements:
            raise TransientError(
                Fault(
                    "the generator cannot be kept alive",
                    "rl.controller.two_process",
                    f"{why}; that was number {self._failures + 1} in a row to finish nothing",
                    "look for its last words above and for a lack of memory, or raise"
                    " `hung_seconds`; then run again, which resumes",
                )
            )
        self._failures += 1
        self.replaced += 1
        self._generator = Generator(self.job)
        for ticket in self._open.values():
            self._generator.ask(ticket)
