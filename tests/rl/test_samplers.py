"""Laws that every prompt sampler keeps, and what each one takes."""

import json
import random

import pytest

from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.pool import Pool
from posttrain.rl.rollout import Rollout
from posttrain.rl.samplers import PROMPT_SAMPLERS

PROMPTS = [
    Prompt(id=str(i), text=f"{i}?", answer="1", task="arithmetic", source="test") for i in range(10)
]


def group(prompt: Prompt, rewards: list[float]) -> tuple[Rollout, ...]:
    return tuple(Rollout(prompt, "", (1,), (0.0,), False, reward=reward) for reward in rewards)


@pytest.mark.parametrize("name", PROMPT_SAMPLERS)
@pytest.mark.parametrize("count", [1, 4, 10, 23])
def test_a_restored_pool_draws_the_same_prompts(name: str, count: int) -> None:
    rng = random.Random(0)
    pool = Pool(PROMPTS, seed=3)

    def draw(one: Pool, step: int) -> list[str]:
        drawn = PROMPT_SAMPLERS[name](one, count)
        one.drawn()
        assert len(drawn) == count
        one.observe([group(p, [float(rng.random() < 0.5), 0.0]) for p in drawn], step)
        return [p.id for p in drawn]

    for step in range(3):
        draw(pool, step)
    restored = Pool(PROMPTS, seed=3)
    restored.restore(json.loads(json.dumps(pool.state())))
    rng.seed(1)
    expected = [draw(pool, step) for step in range(3, 6)]
    rng.seed(1)
    assert [draw(restored, step) for step in range(3, 6)] == expected


@pytest.mark.parametrize("name", PROMPT_SAMPLERS)
def test_the_seed_decides(name: str) -> None:
    orders = [[p.id for p in PROMPT_SAMPLERS[name](Pool(PROMPTS, seed), 10)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_uniform_draws_every_prompt_once_an_epoch() -> None:
    pool = Pool(PROMPTS, seed=0)
    epochs = [[p.id for p in PROMPT_SAMPLERS["uniform"](pool, 5)] for _ in range(4)]
    first, second = epochs[0] + epochs[1], epochs[2] + epochs[3]
    assert sorted(first) == sorted(second) == [p.id for p in PROMPTS]
    assert first != second


def test_difficulty_band_passes_over_the_solved_and_the_hopeless() -> None:
    pool = Pool(PROMPTS, seed=0)
    pool.observe([group(p, [1.0, 1.0]) for p in PROMPTS[:4]], step=0)
    pool.observe([group(p, [0.0, 0.0]) for p in PROMPTS[4:6]], step=0)
    pool.observe([group(p, [1.0, 0.0]) for p in PROMPTS[6:8]], step=0)
    band = build(PROMPT_SAMPLERS, Plugin(name="difficulty_band"))
    assert {p.id for p in band(pool, 4)} == {"6", "7", "8", "9"}


def test_difficulty_band_fills_up_and_tries_old_prompts_again() -> None:
    pool = Pool(PROMPTS, seed=0)
    pool.observe([group(p, [1.0]) for p in PROMPTS], step=0)
    assert len(PROMPT_SAMPLERS["difficulty_band"](pool, 4)) == 4
    pool.observe([group(PROMPTS[0], [1.0])], step=30)
    band = build(PROMPT_SAMPLERS, Plugin(name="difficulty_band", options={"revisit": 20}))
    assert "0" not in {p.id for p in band(pool, 9)}


def test_a_reward_that_is_no_number_does_not_bar_its_prompt() -> None:
    pool = Pool(PROMPTS, seed=0)
    pool.observe([group(PROMPTS[0], [1.0, float("nan"), 0.0])], step=0)
    assert pool.stats["0"].mean == 0.5
