"""Partial rollouts on a simulated clock, and by the real engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rl.simulated import WORD, HastyEngine, SimulatedEngine, ids, prompts_of

from posttrain.engines import Request, Sampling
from posttrain.policies import load_policy
from posttrain.rl.controllers import (
    PartialRollout,
    Staleness,
    Synchronous,
)
from posttrain.rl.explorer import Explorer
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.strategies import external

Make = Callable[..., Explorer]


def versions(groups: Sequence[Group]) -> dict[str, tuple[int, ...]]:
    return {rollout.prompt.id: rollout.versions for group in groups for rollout in group}


def test_partial_rollouts_by_hand(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    """Needs 3, 10, 2 and 7 ticks, N 2 of 4: stops at tick 3; 1 and 3 go on first."""
    explorer = explorer_of(clock, tokenizer, prompts_of([3, 10, 2, 7, 20, 20]))
    controller = PartialRollout(over_sampling=2.0)
    first = controller.collect(explorer, 0, 2)
    assert clock.ticks == 3
    assert ids(first.counted) == ["0", "2"]
    buffer = {b.prompt.id: b.responses[0] for b in controller.begun}
    assert {key: len(r.tokens) for key, r in buffer.items()} == {"1": 3, "3": 3}
    assert not any(r.finished for r in buffer.values())
    assert first.metrics == {
        "stale_token_frac": 0.0, "staleness/max": 0.0, "resumed/share": 0.0, "pending": 2.0
    }  # fmt: skip
    clock.weights = 1
    second = controller.collect(explorer, 1, 2)
    assert clock.ticks == 3 + 7
    assert versions(second.counted) == {"1": (0,) * 3 + (1,) * 7, "3": (0,) * 3 + (1,) * 4}
    assert second.counted[0][0].behaviour_logps == (0.0,) * 3 + (-1.0,) * 7
    assert {r.source for group in second.counted for r in group} == {"resumed"}
    assert second.metrics["stale_token_frac"] == pytest.approx(6 / 17)
    assert second.metrics["resumed/share"] == 1
    assert [(b.prompt.id, len(b.responses[0].tokens)) for b in controller.begun] == [
        ("4", 7), ("5", 7),
    ]  # fmt: skip


def test_groups_that_finish_together_wait_and_are_next(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([3] * 4 + [9] * 4), group_size=2)
    controller = PartialRollout()
    first = controller.collect(explorer, 0, 2)
    assert (ids(first.counted), len(first.generated), controller.pending()) == (["0", "1"], 4, 4)
    second = controller.collect(explorer, 1, 2)
    assert (ids(second.counted), clock.ticks) == (["2", "3"], 3)
    assert second.metrics["stale_token_frac"] == 1
    third = controller.collect(explorer, 2, 1)
    assert (ids(third.counted), clock.ticks) == (["4"], 3 + 9)


def test_no_prompt_is_lost_or_trained_twice_and_fewer_ticks_are_waited(
    explorer_of: Make,
    tokenizer: Any,
) -> None:
    """Of long-tailed lengths, against the barrier; each drawn prompt is in one place at a time."""
    lengths = [2 + (i * 7919 % 5) + 45 * (i % 6 == 3) for i in range(200)]
    engines = [SimulatedEngine(tokenizer.eos_token_id) for _ in range(2)]
    tokens, fractions = [0, 0], []
    for place, controller in enumerate((Synchronous(), PartialRollout())):
        explorer = explorer_of(engines[place], tokenizer, prompts_of(lengths))
        done: list[str] = []
        for step in range(15):
            draw = controller.collect(explorer, step, 4)
            done += ids(draw.counted)
            tokens[place] += sum(len(r.tokens) for group in draw.counted for r in group)
            if isinstance(controller, PartialRollout):
                fractions.append(draw.metrics["stale_token_frac"])
                begun = [group.prompt.id for group in controller.begun]
                everyone = done + begun + ids(controller.waiting)
                assert sorted(everyone, key=int) == [str(i) for i in range(explorer.pool.cursor)]
        finished = done + (ids(controller.waiting) if place else [])
        assert {key: stats.count for key, stats in explorer.pool.stats.items()} == dict.fromkeys(
            finished, 1
        )
        assert len(done) == len(set(done)) == 60
    barrier, april = (e.ticks / count for e, count in zip(engines, tokens, strict=True))
    assert april < 0.7 * barrier
    assert 0 < sum(fractions) / len(fractions) < 0.6


def test_a_group_with_a_demonstration_is_resumed_without_another(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    prompts = prompts_of([9, 4, 9, 4])
    shown = {
        p.id: Rollout(p, "", (WORD,), (0.0,), truncated=False, source="external") for p in prompts
    }
    explorer = explorer_of(
        clock, tokenizer, prompts, demonstrations=shown, strategy=external, group_size=3
    )
    controller = PartialRollout()
    draws = [controller.collect(explorer, step, 2) for step in range(2)]
    assert [ids(draw.counted) for draw in draws] == [["1", "3"], ["0", "2"]]
    for draw in draws:
        for group in draw.counted:
            assert [r.source == "external" for r in group] == [True, False, False]
            assert len(group[1].tokens) == int(group[1].prompt.text.split("/")[0])
    assert draws[1].metrics["resumed/share"] == 1


def test_demonstrations_are_nobodys_pending_completions_and_have_no_age(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    prompts = prompts_of([4] * 40)
    shown = {
        p.id: Rollout(p, "", (WORD,), (0.0,), truncated=False, source="external") for p in prompts
    }
    explorer = explorer_of(
        clock, tokenizer, prompts, demonstrations=shown, strategy=external, group_size=3
    )
    controller = Staleness(eta=1)
    draws = [controller.collect(explorer, step, 2) for step in range(5)]
    assert controller.pending() == 2 * 2
    assert [draw.metrics["staleness/max"] for draw in draws] == [0, 1, 1, 1, 1]
    strict = Staleness(eta=0)
    strict.restore(controller.state())
    assert strict.collect(explorer, 5, 2).dropped == {"stale": 2 * 2}


@pytest.mark.parametrize("batch", [8, 512])
def test_partial_rollouts_by_the_real_engine(
    explorer_of: Make, tiny_policy: Path, batch: int
) -> None:
    """While the policy stays the same, a response is the same in however many pieces."""
    policy = load_policy(tiny_policy)
    prompts, options = prompts_of([1] * 40), {"group_size": 2, "max_new_tokens": 24}
    engine = HastyEngine(policy, batch=batch)
    explorer = explorer_of(engine, policy.tokenizer, prompts, **options)
    controller = PartialRollout(over_sampling=2.0)
    draws = [controller.collect(explorer, step, 3) for step in range(6)]
    groups = [group for draw in draws for group in draw.counted]
    rollouts = [rollout for group in groups for rollout in group]
    assert len(groups) == len(set(ids(groups))) == 18
    resumed = [rollout for rollout in rollouts if rollout.source == "resumed"]
    assert any(len(set(rollout.versions)) > 1 for rollout in resumed)
    seeds = {b.seeds for b in controller.begun}
    assert len(seeds) == len(controller.begun)
    for r in rollouts:
        assert r.finished
        assert len(r.tokens) == len(r.versions) == len(r.behaviour_logps)
        assert list(r.versions) == sorted(r.versions)
        assert r.truncated == (r.tokens[-1] not in engine.stop_ids)
    whole = engine.resume(
        [Request(ask.prompt.text, ask.seed, 24) for b in controller.begun for ask in b.asks()],
        Sampling(),
    )
    begun = [ask.begun for b in controller.begun for ask in b.asks()]
    assert begun
    for piece, response in zip(begun, whole, strict=True):
        assert piece is not None
        assert response.tokens[: len(piece.tokens)] == piece.tokens
