"""Controllers on a simulated clock, where a token takes a tick."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.rl.simulated import SimulatedEngine, ids, prompts_of

from posttrain.rl.controllers import (
    CONTROLLERS,
    Controller,
    PartialRollout,
    Staleness,
    Synchronous,
    capacity,
)
from posttrain.rl.experience import Draw
from posttrain.rl.explorer import Explorer
from posttrain.rl.rollout import Rollout

Make = Callable[..., Explorer]
MAKERS: dict[str, Callable[[], Controller]] = {
    "synchronous": Synchronous,
    "staleness": lambda: Staleness(eta=2, max_concurrent=5),
    "partial_rollout": PartialRollout,
}
ELSEWHERE = {"two_process"}
"""Needs a policy's folder and time, and has a file of its own."""


def test_every_controller_is_tried() -> None:
    assert MAKERS.keys() | ELSEWHERE == CONTROLLERS.keys()


@pytest.mark.parametrize(
    ("eta", "batch", "version", "accepted", "running", "most", "expected"),
    [(4, 8, 2, 40, 10, 99, 6), (4, 8, 2, 40, 10, 12, 2), (0, 8, 3, 24, 0, 99, 8),
     (0, 8, 3, 32, 0, 99, 0), (2, 8, 0, 0, 0, 99, 24)],
)  # fmt: skip
def test_capacity_by_hand(
    eta: int, batch: int, version: int, accepted: int, running: int, most: int, expected: int
) -> None:
    """min(most - running, (eta + v + 1) B - (accepted + running))."""
    assert capacity(eta, batch, version, accepted, running, most) == expected


@pytest.mark.parametrize("eta", [0, 1, 4])
@pytest.mark.parametrize("most", [0, 3, 5])
def test_nothing_is_older_than_eta(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any, eta: int, most: int
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 7))
    controller = Staleness(eta=eta, max_concurrent=most)
    handed = 0
    for step in range(8):
        draw = controller.collect(explorer, step, 4)
        ages = [step - group[0].version for group in draw.counted]
        assert len(ages) == 4
        assert max(ages) <= eta
        assert draw.metrics["staleness/max"] == max(ages)
        assert draw.metrics["staleness/mean"] == sum(ages) / 4
        assert draw.metrics["queue/length"] == controller.pending()
        handed += 4
    assert most or max(ages) == eta
    assert explorer.pool.cursor == handed + controller.pending()


def test_the_queue_grows_to_eta_batches_and_no_longer(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    """Step 0 draws (eta + 1) B = 12, each later step B = 4; step 2 is the first at full age."""
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 40))
    controller = Staleness(eta=2)
    draws = [controller.collect(explorer, step, 4) for step in range(4)]
    assert [len(draw.generated) for draw in draws] == [12, 4, 4, 4]
    assert [draw.metrics["staleness/mean"] for draw in draws] == [0, 1, 2, 2]
    assert ids([g for draw in draws for g in draw.counted]) == [str(i) for i in range(16)]


def test_what_is_too_old_is_dropped_and_counted(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 40), group_size=2)
    patient, strict = Staleness(eta=2), Staleness(eta=0)
    patient.collect(explorer, 0, 4)
    strict.restore(json.loads(json.dumps(patient.state())))
    draw = strict.collect(explorer, 1, 4)
    assert draw.dropped == {"stale": 8 * 2}
    assert {group[0].version for group in draw.counted} == {1}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("max_draws", [1, 3])
def test_every_rollout_is_accounted_for(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any, name: str, max_draws: int
) -> None:
    def odd(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        """Prompt 3 has no number, prompts 2 and 5 no signal."""
        return [
            float("nan") if r.prompt.id == "3" else float(r.prompt.id not in "25" and at % 2)
            for at, r in enumerate(rollouts)
        ]

    lengths = [2, 9, 4, 3, 12, 5, 2]
    explorer = explorer_of(
        clock,
        tokenizer,
        prompts_of(lengths),
        rewards={"test": odd},
        group_size=2,
        max_draws=max_draws,
    )
    controller = MAKERS[name]()
    sums: Counter[str] = Counter()
    for step in range(6):
        draw = controller.collect(explorer, step, 3)
        assert len(draw.counted) <= 3
        sums["generated"] += sum(map(len, draw.generated))
        sums["handed"] += sum(map(len, draw.counted))
        sums["dropped"] += sum(draw.dropped.values())
        assert sums["generated"] == sums["handed"] + sums["dropped"] + controller.pending()
    assert sums["dropped"] > 0


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("max_draws", [1, 2])
def test_a_restored_controller_goes_on_the_same(
    explorer_of: Make, tokenizer: Any, name: str, max_draws: int
) -> None:
    def fresh() -> tuple[Explorer, Controller]:
        engine = SimulatedEngine(tokenizer.eos_token_id)
        lengths = [3, 10, 2, 7, 30, 4, 2]
        options = {"group_size": 2, "max_draws": max_draws}
        return explorer_of(engine, tokenizer, prompts_of(lengths), **options), MAKERS[name]()

    explorer, controller = fresh()
    for step in range(3):
        controller.collect(explorer, step, 2)
    again, restored = fresh()
    again.pool.restore(json.loads(json.dumps(explorer.pool.state())))
    restored.restore(json.loads(json.dumps(controller.state())))
    for step in range(3, 7):
        assert restored.collect(again, step, 2) == controller.collect(explorer, step, 2)
    assert restored.pending() == controller.pending()


def test_an_empty_draw_hands_out_nothing(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    def none(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        return [float("nan")] * len(rollouts)

    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 9), rewards={"test": none})
    for name in MAKERS:
        draw: Draw = MAKERS[name]().collect(explorer, 0, 2)
        assert draw.counted == []
        assert set(draw.dropped) == {"bad_reward"}
