"""Controllers: when completions are drawn, and how old they may get before the update sees them.

A controller's state is JSON, so that a resumed run goes on with what was in flight. To add one,
write the class, name its paper in the docstring, and add a line to CONTROLLERS.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Annotated, Any, NamedTuple, Protocol, Self

from pydantic import Field

from posttrain.records import Prompt
from posttrain.rl.experience import Draw, collect, own, sieve
from posttrain.rl.explorer import Explorer, unfinished
from posttrain.rl.rollout import Group, Rollout, kept, revived
from posttrain.rl.strategies import Ask, Play


class Controller(Protocol):
    """Collects the groups of each step."""

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        """`wanted` groups to learn from at `step`, fewer where there are no more."""

    def pending(self) -> int:
        """Completions that are finished and wait."""

    def state(self) -> Any:
        """What a checkpoint needs, as JSON."""

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""

    def close(self) -> None:
        """End what runs beside the loop, if anything does."""


class Synchronous:
    """Draw, learn, draw: every group is from the policy that learns from it."""

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        return collect(partial(explorer.groups, step), wanted, explorer.config.max_draws)

    def pending(self) -> int:
        return 0

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing to restore."""

    def close(self) -> None:
        """Nothing runs."""


class Waiting(NamedTuple):
    """A finished group and the step that drew it."""

    step: int
    group: Group


class Staleness:
    """AReaL's bound on age, with generation and training taking turns (arXiv:2505.24298).

    A step draws as many groups as `capacity` allows with today's weights, puts them at the end of
    a queue and learns from its head; what is more than `eta` steps old is dropped as `stale`.
    `max_concurrent`: groups drawn at once at most, in more than one round only while the update
    would have to wait; 0: no limit. `eta` 0 is `synchronous`, bit for bit.
    As in AReaL after a recovery, each past step counts as a full batch in `accepted`.
    """

    def __init__(
        self,
        *,
        eta: Annotated[int, Field(ge=0)] = 4,
        max_concurrent: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.eta, self.max_concurrent = eta, max_concurrent
        self.queue: list[Waiting] = []

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        found, draws = Draw.empty(), explorer.config.max_draws
        for waiting in self.queue:
            found.dropped["stale"] += self._stale(waiting, step) * own(waiting.group)
        self.queue = [waiting for waiting in self.queue if not self._stale(waiting, step)]
        most = self.max_concurrent or wanted * (self.eta + 1)
        for attempt in range(draws * math.ceil(wanted / most)):
            accepted = step * wanted + len(self.queue)
            room = capacity(self.eta, wanted, step, accepted, 0, most)
            if room <= 0:
                break
            fresh = explorer.groups(step, attempt, room)
            usable = sieve(found, fresh, silent=draws > 1)
            self.queue += [Waiting(step, group) for group in usable]
            if len(self.queue) >= wanted:
                break
        handed, self.queue = self.queue[:wanted], self.queue[wanted:]
        found.counted.extend(waiting.group for waiting in handed)
        ages = [step - waiting.step for waiting in handed]
        found.metrics["staleness/mean"] = fmean(ages) if ages else 0.0
        found.metrics["staleness/max"] = float(max(ages, default=0))
        found.metrics["queue/length"] = float(len(self.queue))
        return found

    def _stale(self, waiting: Waiting, step: int) -> bool:
        return step - waiting.step > self.eta

    def pending(self) -> int:
        return sum(own(waiting.group) for waiting in self.queue)

    def state(self) -> Any:
        return [[waiting.step, kept(waiting.group)] for waiting in self.queue]

    def restore(self, state: Any) -> None:
        self.queue = [Waiting(step, revived(group)) for step, group in state]

    def close(self) -> None:
        """Nothing runs."""


def capacity(
    eta: int, batch: int, version: int, accepted: int, running: int, max_concurrent: int
) -> int:
    """How many groups may be begun: AReaL's rule, in groups; `accepted` since the run began."""
    return min(max_concurrent - running, (eta + version + 1) * batch - (accepted + running))


class Begun(NamedTuple):
    """A group on its way; `responses` as far as they got, empty before anybody asked for them."""

    prompt: Prompt
    seeds: tuple[int, ...]
    responses: Group = ()

    @property
    def done(self) -> bool:
        """Whether every response is finished."""
        return bool(self.responses) and all(response.finished for response in self.responses)

    def asks(self) -> list[Ask]:
        """What is still to be written."""
        begun = self.responses or (None,) * len(self.seeds)
        places = zip(self.seeds, begun, range(len(self.seeds)), strict=True)
        return [
            Ask(self.prompt, seed, response, place)
            for seed, response, place in places
            if response is None or not response.finished
        ]

    def grown(self, ends: Iterator[Rollout], most: int) -> Self:
        """With what came of the asks, in their order; `most`: tokens of a response."""
        begun = self.responses or (None,) * len(self.seeds)
        responses = tuple(
            response if response and response.finished else unfinished(next(ends), most)
            for response in begun
        )
        return self._replace(responses=responses)

    def state(self) -> list[Any]:
        """As JSON, for a checkpoint."""
        return [self.prompt.model_dump(mode="json"), self.seeds, kept(self.responses)]

    @classmethod
    def restored(cls, state: Sequence[Any]) -> Self:
        """What `state` was taken of."""
        prompt, seeds, responses = state
        return cls(Prompt.model_validate(prompt), tuple(seeds), revived(responses))


class PartialRollout:
    """APRIL: nobody waits for the longest responses (arXiv:2509.18521).

    `over_sampling` times the missing groups are under way at once; when enough are finished the
    others stop, keep their tokens with log-probs and versions, and go on first in the next step.
    A drawn prompt is in one place at a time: begun, waiting (finished, but not wanted yet) or
    handed out. With `over_sampling` 1 it is `synchronous`, bit for bit.
    Groups have the stage's size, and a response is one piece.
    """

    def __init__(self, *, over_sampling: Annotated[float, Field(ge=1)] = 2.0) -> None:
        self.over_sampling = over_sampling
        self.begun: list[Begun] = []
        self.waiting: list[Group] = []

    def collect(self, explorer: Explorer, step: int, wanted: int) -> Draw:
        found, draws = Draw.empty(), explorer.config.max_draws
        for attempt in range(draws):
            missing = wanted - len(self.waiting)
            if missing <= 0:
                break
            finished = self._finish(explorer, step, attempt, missing)
            self.waiting += sieve(found, finished, silent=draws > 1)
        handed, self.waiting = self.waiting[:wanted], self.waiting[wanted:]
        found.counted.extend(handed)
        found.metrics.update(mixture(handed, step), pending=float(len(self.begun)))
        return found

    def _finish(self, explorer: Explorer, step: int, attempt: int, missing: int) -> list[Group]:
        """Go on with what is begun, and with new prompts, until `missing` groups are finished."""
        size, most = explorer.config.group_size, math.ceil(missing * self.over_sampling)
        running, later = self.begun[:most], self.begun[most:]
        new = explorer.prompts(most - len(running)) if len(running) < most else []
        for at, prompt in enumerate(new):
            places = [f"{step}/{attempt}/{at}/{place}" for place in range(size)]
            running.append(Begun(prompt, tuple(map(explorer.seed, places))))
        asks = [ask for group in running for ask in group.asks()]
        play = race(explorer, step, running, missing)
        ends = iter(explorer.strategy(play, asks, explorer.demonstrations))
        running = [group.grown(ends, explorer.config.max_new_tokens) for group in running]
        self.begun = [group for group in running if not group.done] + later
        groups = explorer.scored([group.responses for group in running if group.done])
        explorer.observe(groups, step)
        return groups

    def pending(self) -> int:
        return sum(map(own, self.waiting))

    def state(self) -> Any:
        begun = [group.state() for group in self.begun]
        return {"begun": begun, "waiting": [kept(group) for group in self.waiting]}

    def restore(self, state: Any) -> None:
        self.begun = [Begun.restored(group) for group in state["begun"]]
        self.waiting = [revived(group) for group in state["waiting"]]

    def close(self) -> None:
        """Nothing runs."""


def race(explorer: Explorer, step: int, running: Sequence[Begun], missing: int) -> Play:
    """Plays until all responses of `missing` groups are finished."""
    owner = {seed: at for at, group in enumerate(running) for seed in group.seeds}

    def play(asks: Sequence[Ask]) -> list[Rollout]:
        groups = [owner[ask.seed] for ask in asks]
        sizes = Counter(groups)

        def enough(done: Sequence[int]) -> bool:
            ended = Counter(groups[at] for at in done)
            return sum(ended[at] == size for at, size in sizes.items()) >= missing

        return explorer.play(asks, step, enough)

    return play


def mixture(groups: Sequence[Group], step: int) -> dict[str, float]:
    """How much of what is handed out is older than the step."""
    rollouts = [r for group in groups for r in group if r.source != "external"]
    versions = [version for rollout in rollouts for version in rollout.versions]
    resumed = sum(rollout.source == "resumed" for rollout in rollouts)
    return {
        "stale_token_frac": sum(version < step for version in versions) / max(1, len(versions)),
        "staleness/max": float(step - min(versions, default=step)),
        "resumed/share": resumed / max(1, len(rollouts)),
    }


def two_process(
    *,
    eta: Annotated[int, Field(ge=0)] = 4,
    hung_seconds: Annotated[float, Field(gt=0)] = 60.0,
    max_replacements: Annotated[int, Field(ge=0)] = 3,
) -> Controller:
    """AReaL with a process of its own that generates while this one trains (arXiv:2505.24298).

    Nothing learnt from is more than `eta` steps old; `eta` 0 is `synchronous`, bit for bit. A
    generator that died, or gave no sign of life for `hung_seconds`, is replaced, and asked again
    what it left open; after `max_replacements` in a row that finished nothing the run ends.
    """
    from posttrain.rl.two_process import TwoProcess

    return TwoProcess(eta, hung_seconds, max_replacements)


CONTROLLERS: dict[str, Callable[..., Controller]] = {
    "synchronous": Synchronous,
    "staleness": Staleness,
    "partial_rollout": PartialRollout,
    "two_process": two_process,
}
