"""Replays: the lessons of a step in, the batches of its updates out, one at least.

A replay's state is JSON. To add one, write the class, name its paper in the docstring, and add a
line to REPLAYS.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, Protocol

from pydantic import Field, PositiveInt

from posttrain.rl.experience import Lesson


class Replay(Protocol):
    """Composes batches."""

    def compose(self, fresh: list[Lesson], step: int) -> list[list[Lesson]]:
        """The batches to learn from, one update each."""

    def metrics(self) -> dict[str, float]:
        """Of the last composition, for the journal."""

    def state(self) -> Any:
        """What a checkpoint needs, as JSON."""

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""


class Fresh:
    """Each lesson once, in the step that made it."""

    def compose(self, fresh: list[Lesson], step: int) -> list[list[Lesson]]:
        return [fresh]

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing to restore."""


class RolloutReplay:
    """A share of each batch comes from earlier steps (rollout replay of DOTS, arXiv:2506.05316).

    Groups of earlier steps fill it up until the share `fresh` of its groups is new. The newest
    `capacity` groups whose rewards are not all equal wait in a queue, with the log-probs and the
    advantages that they had; for rewards of 0 and 1 those are the groups whose mean is neither.
    Which of them are replayed is drawn without replacement by `seed` and step, and none leaves the
    queue for it (both assumed). To halve the rollouts of a step, halve `prompts_per_step`. With
    `fresh` 1 nothing is replayed.
    """

    def __init__(
        self,
        *,
        fresh: Annotated[float, Field(gt=0, le=1)] = 0.5,
        capacity: PositiveInt = 512,
        seed: int = 0,
    ) -> None:
        self.fresh, self.seed = fresh, seed
        self.queue: deque[list[Lesson]] = deque(maxlen=capacity)
        self._metrics: dict[str, float] = {}

    def compose(self, fresh: list[Lesson], step: int) -> list[list[Lesson]]:
        groups = grouped(fresh)
        rng = random.Random(f"{self.seed}/replay/{step}")
        wanted = round(len(groups) * (1 - self.fresh) / self.fresh)
        chosen = rng.sample(range(len(self.queue)), min(wanted, len(self.queue)))
        first = max((lesson.group for lesson in fresh), default=-1) + 1
        old = [replayed(self.queue[i], number) for number, i in enumerate(chosen, first)]
        ages = [step - lesson.rollout.version for group in old for lesson in group]
        self._metrics = {
            "replay/groups": float(len(old)),
            "replay/age": fmean(ages) if ages else 0.0,
        }
        self.queue += [group for group in groups if varied(group)]
        self._metrics["replay/waiting"] = float(len(self.queue))
        if not old:
            return [fresh]
        # Otherwise the last minibatch of several would be the replayed groups alone.
        mixed = groups + old
        rng.shuffle(mixed)
        return [[lesson for group in mixed for lesson in group]]

    def metrics(self) -> dict[str, float]:
        return self._metrics

    def state(self) -> Any:
        return [[lesson.state() for lesson in group] for group in self.queue]

    def restore(self, state: Any) -> None:
        self.queue.clear()
        self.queue += [[Lesson.restored(lesson) for lesson in group] for group in state]


def grouped(lessons: Sequence[Lesson]) -> list[list[Lesson]]:
    """The lessons by group, in their order."""
    groups: dict[int, list[Lesson]] = {}
    for lesson in lessons:
        groups.setdefault(lesson.group, []).append(lesson)
    return list(groups.values())


def varied(group: Sequence[Lesson]) -> bool:
    """Whether there is something to learn from the group when it comes again."""
    rewards = {lesson.rollout.reward for lesson in group}
    return len(rewards) > 1 and any(lesson.learn for lesson in group)


def replayed(group: Sequence[Lesson], number: int) -> list[Lesson]:
    """The group under another number; what the policy wrote is marked as replayed."""

    def again(lesson: Lesson) -> Lesson:
        if lesson.rollout.source == "external":
            return lesson._replace(group=number)
        return lesson._replace(group=number, rollout=replace(lesson.rollout, source="replay"))

    return [again(lesson) for lesson in group]


REPLAYS: dict[str, Callable[..., Replay]] = {"fresh": Fresh, "rr_fifo": RolloutReplay}
