"""The trainer's side of generation in a process of its own; see `posttrain.rl.controllers`.

Prompts are sampled and responses are scored here, in the order in which they were asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, Self

import torch

from posttrain.records import Prompt
from posttrain.rl.controllers import capacity
from posttrain.rl.experience import Draw, own, sieve
from posttrain.rl.explorer import Explorer
from posttrain.rl.generator import Answer, Job
from posttrain.rl.rollout import Group, kept, revived
from posttrain.rl.strategies import Ask
from posttrain.rl.watchdog import Watchdog


class Waiting(NamedTuple):
    """A finished group and the oldest weights that wrote part of it."""

    version: int
    group: Group


@dataclass
class Batch:
    """Groups that are asked for together, round by round as the budget says.

    `draw`: "step/attempt", where the first of them has the place `first`; `version`: the oldest
    weights so far, -1 before the first round; `asks`: of the open ticket, by prompt.
    """

    draw: str
    first: int
    prompts: Sequence[Prompt]
    groups: Sequence[Group]
    version: int = -1
    asks: Sequence[Sequence[Ask]] = ()

    @property
    def done(self) -> bool:
        """Whether the budget wants no more."""
        return not any(self.asks)

    def plan(self, explorer: Explorer) -> None:
        """Decide what to ask next."""
        self.asks = explorer.asks(self.draw, self.prompts, self.groups, self.first)

    def take(self, explorer: Explorer, answer: Answer) -> None:
        """Score the answer, and decide what to ask next."""
        self.groups = explorer.grown(self.groups, self.asks, answer.rollouts)
        self.version = answer.version if self.version < 0 else min(self.version, answer.version)
        self.plan(explorer)

    def state(self) -> list[Any]:
        """As JSON, for a checkpoint; what to ask follows from it."""
        prompts = [prompt.model_dump(mode="json") for prompt in self.prompts]
        return [self.draw, self.first, prompts, [*map(kept, self.groups)], self.version]

    @classmethod
    def restored(cls, state: Sequence[Any]) -> Self:
        """What `state` was taken of."""
        draw, first, prompts, groups, version = state
        known = [Prompt.model_validate(prompt) for prompt in prompts]
        return cls(draw, first, known, [*map(revived, groups)], version)


class TwoProcess:
    """The controller `two_process`; its options are told there.

    A draw is asked for in batches of a step's groups, so that the first of them need not wait for
    the others, and never more than the steps that are left can use.
    """

    def __init__(self, eta: int, hung_seconds: float, max_replacements: int) -> None:
        self.eta, self.hung_seconds, self.max_replacements = eta, hung_seconds, max_replacements
        self.waiting: list[Waiting] = []
        self.batches: list[Batch] = []
        self._asked: dict[int, Batch] = {}
        self._watchdog: Watchdog | None = None

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        found, draws = Draw.empty(), explorer.config.max_draws
        watchdog = self._ready(explorer, step)
        while answer := watchdog.answer(wait=False):
            self._take(explorer, step, found, answer)
        attempt = 0
        while True:
            self._drop_stale(found, step)
            if attempt < draws:
                attempt += self._begin(explorer, step, attempt, wanted)
            if len(self.waiting) >= wanted:
                break
            answer = watchdog.answer(wait=True)
            if answer is None:
                break
            self._take(explorer, step, found, answer)
        handed, self.waiting = self.waiting[:wanted], self.waiting[wanted:]
        found.counted.extend(waiting.group for waiting in handed)
        ages = [step - waiting.version for waiting in handed]
        found.metrics["staleness/mean"] = fmean(ages) if ages else 0.0
        found.metrics["staleness/max"] = float(max(ages, default=0))
        found.metrics["queue/length"] = float(len(self.waiting))
        found.metrics["generator/idle_seconds"] = watchdog.idle
        found.metrics["generator/replaced"] = float(watchdog.replaced)
        found.metrics["trainer/idle_seconds"] = watchdog.waited
        return found

    def pending(self) -> int:
        return sum(own(waiting.group) for waiting in self.waiting)

    def state(self) -> Any:
        return {
            "waiting": [[waiting.version, kept(waiting.group)] for waiting in self.waiting],
            "batches": [batch.state() for batch in self.batches],
        }

    def restore(self, state: Any) -> None:
        self.waiting = [Waiting(version, revived(group)) for version, group in state["waiting"]]
        self.batches = [Batch.restored(batch) for batch in state["batches"]]

    def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None

    def _ready(self, explorer: Explorer, step: int) -> Watchdog:
        """Publish the weights of this step; what a checkpoint left open is asked again."""
        origin = explorer.origin
        if origin is None:
            raise ValueError("nobody says where another process finds the policy")
        if self._watchdog is not None:
            self._watchdog.publish(origin.weights, step)
            return self._watchdog
        config, folder = explorer.config.model_dump_json(), str(origin.scratch / "generator")
        job = Job(config, str(origin.folder), folder, torch.get_num_threads())
        self._watchdog = Watchdog(job, self.hung_seconds, self.max_replacements)
        self._watchdog.publish(origin.weights, step)
        for batch in self.batches:
            batch.plan(explorer)
            self._ask(explorer, batch)
        return self._watchdog

    def _begin(self, explorer: Explorer, step: int, attempt: int, wanted: int) -> bool:
        """Ask for as many new groups as `capacity` allows; whether it allows any."""
        accepted = step * wanted + len(self.waiting)
        running = sum(len(batch.prompts) for batch in self.batches)
        eta = min(self.eta, explorer.config.steps - 1 - step)
        room = capacity(eta, wanted, step, accepted, running, wanted * (eta + 1))
        if room <= 0:
            return False
        prompts = explorer.prompts(room)
        for first in range(0, room, wanted):
            chosen = prompts[first : first + wanted]
            batch = Batch(f"{step}/{attempt}", first, chosen, [() for _ in chosen])
            batch.plan(explorer)
            self.batches.append(batch)
            self._ask(explorer, batch)
        return True

    def _ask(self, explorer: Explorer, batch: Batch) -> None:
        asks = [ask for each in batch.asks for ask in each]
        if asks and self._watchdog:
            shown = explorer.demonstrations
            theirs = {ask.prompt.id: shown[ask.prompt.id] for ask in asks if ask.prompt.id in shown}
            self._asked[self._watchdog.ask(asks, theirs)] = batch

    def _take(self, explorer: Explorer, step: int, found: Draw, answer: Answer) -> None:
        """Enter an answer; batches join the queue in the order in which they were begun."""
        batch = self._asked.pop(answer.number)
        batch.take(explorer, answer)
        self._ask(explorer, batch)
        while self.batches and self.batches[0].done:
            batch = self.batches.pop(0)
            explorer.observe(batch.groups, step)
            usable = sieve(found, batch.groups, silent=explorer.config.max_draws > 1)
            self.waiting += [Waiting(batch.version, group) for group in usable]

    def _drop_stale(self, found: Draw, step: int) -> None:
        """Drop what is older than `eta`."""
        for waiting in self.waiting:
            if step - waiting.version > self.eta:
                found.dropped["stale"] += own(waiting.group)
        self.waiting = [each for each in self.waiting if step - each.version <= self.eta]
