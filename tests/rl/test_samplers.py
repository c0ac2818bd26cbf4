"""Laws that every prompt sampler keeps, and what each one takes."""

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.pool import Pool, Seen
from posttrain.rl.rollout import Rollout
from posttrain.rl.samplers import PROMPT_SAMPLERS
from posttrain.rl.samplers.difficulty import (
    Fitting,
    attended,
    calibrated,
    correlation,
    predict,
)
from posttrain.rl.samplers.dots import drawn_order, newest, preference, standardised
from posttrain.rl.samplers.vade import update, value

PROMPTS = [
    Prompt(id=str(i), text=f"{i}?", answer="1", task="arithmetic", source="test") for i in range(10)
]


SMALL = {"dots": {"fewest": 8, "width": 8, "explore": 0.0}}
"""Options with which a sampler does its work on ten prompts."""


def member(name: str, **options: Any) -> Callable[..., list[Prompt]]:
    return build(PROMPT_SAMPLERS, Plugin(name=name, options={**SMALL.get(name, {}), **options}))


def embed(prompts: Sequence[Prompt]) -> Tensor:
    """Two columns, the place on a circle and noise, as any pooled embeddings: no zero mean."""
    angles = torch.tensor([float(int(p.id)) for p in prompts])
    return torch.stack([angles.cos(), angles.sin(), (angles * 7.7).sin()], dim=1) + 3


def pool_of(seed: int, prompts: Sequence[Prompt] = PROMPTS) -> Pool:
    return Pool(prompts, seed, embed)


def group(prompt: Prompt, rewards: list[float]) -> tuple[Rollout, ...]:
    return tuple(Rollout(prompt, "", (1,), (0.0,), False, reward=reward) for reward in rewards)


@pytest.mark.parametrize("name", PROMPT_SAMPLERS)
@pytest.mark.parametrize("count", [1, 4, 10, 23])
def test_a_restored_pool_draws_the_same_prompts(name: str, count: int) -> None:
    rng = random.Random(0)
    pool, sample = pool_of(3), member(name)

    def draw(one: Pool, step: int) -> list[str]:
        drawn = sample(one, count)
        one.drawn()
        assert len(drawn) == count
        one.observe([group(p, [float(rng.random() < 0.5), 0.0]) for p in drawn], step)
        return [p.id for p in drawn]

    begun = 11 if count == 1 else 3
    for step in range(begun):
        draw(pool, step)
    restored = pool_of(3)
    restored.restore(json.loads(json.dumps(pool.state(), sort_keys=True)))
    rng.seed(1)
    expected = [draw(pool, step) for step in range(begun, begun + 3)]
    rng.seed(1)
    assert [draw(restored, step) for step in range(begun, begun + 3)] == expected


@pytest.mark.parametrize("name", PROMPT_SAMPLERS)
def test_the_seed_decides(name: str) -> None:
    def order(seed: int) -> list[str]:
        pool = pool_of(seed)
        pool.observe([group(p, [float(i % 3 == 0), 0.0]) for i, p in enumerate(PROMPTS)], 0)
        return [p.id for p in member(name)(pool, 10)]

    assert order(0) == order(0)
    assert len({tuple(order(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize("name", PROMPT_SAMPLERS)
@pytest.mark.parametrize("rewards", [[], [math.nan], [1.0], [0.0, 0.0], [-3.0, 7.0]])
def test_no_group_breaks_a_sampler(name: str, rewards: list[float]) -> None:
    pool, sample = pool_of(0), member(name)
    for step in range(4):
        drawn = sample(pool, 10)
        pool.drawn()
        pool.observe([group(p, rewards) for p in drawn if rewards], step)
        assert len(drawn) == 10
    assert all(map(math.isfinite, pool.memory.get("metrics", {}).values()))


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


def test_repeat_one_fills_the_batch_with_one_prompt() -> None:
    pool = pool_of(0)
    assert {p.id for p in member("repeat_one", prompt_id="7")(pool, 5)} == {"7"}
    first, third = (member("repeat_one", place=place)(pool, 3) for place in (0, 2))
    assert [p.id for p in first] == [pool.first(1)[0].id] * 3
    assert [p.id for p in third] == [pool.first(3)[2].id] * 3
    assert pool.memory["metrics"]["prompts/unique"] == 1


@pytest.mark.parametrize(
    ("groups", "flag"), [([[1.0, 1.0]], 1.0), ([[1.0, 1.0], [1.0, 0.0]], 0.0), ([], 0.0)]
)
def test_repeat_one_flags_a_prompt_that_teaches_no_more(
    groups: list[list[float]], flag: float
) -> None:
    pool = pool_of(0)
    pool.observe([group(PROMPTS[0], rewards) for rewards in groups], step=0)
    member("repeat_one")(pool, 2)
    assert pool.memory["metrics"]["repeat_one/saturated"] == flag


@pytest.mark.parametrize("options", [{"prompt_id": "70"}, {"place": 10}])
def test_repeat_one_says_that_the_prompt_is_not_there(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="among the 10 prompts"):
        member("repeat_one", **options)(pool_of(0), 2)


def test_vade_by_hand() -> None:
    assert value(1 / 3) == pytest.approx(0.148148, abs=1e-6)
    assert [value(0.5), value(0.9)] == pytest.approx([0.125, 0.009])
    counts = {"p": [4.0, 4.0]}
    update(counts, Seen("p", [1.0] * 6 + [0.0] * 2), 0.9, threshold=0.5)
    assert counts["p"] == pytest.approx([9.6, 5.6])


def test_vade_forgets_everywhere_and_more_where_it_looked() -> None:
    pool = pool_of(0)
    sample = member("vade", local_decay=0.5, global_decay=0.8, threshold=1.0)
    pool.memory["vade"] = {"0": [10.0, 0.0], "1": [10.0, 0.0]}
    pool.observe([group(PROMPTS[0], [1.0, 0.9])], step=0)
    sample(pool, 1)
    assert pool.memory["vade"] == {"0": pytest.approx([5.0, 1.0]), "1": pytest.approx([8.0, 0.0])}
    pool.drawn()
    sample(pool, 1)
    assert pool.memory["vade"]["1"] == pytest.approx([8.0, 0.0])


@pytest.mark.parametrize(
    ("counts", "mean"),
    [
        # E p(1-p)^2 under Beta(a, b) is B(a + 1, b + 2) / B(a, b).
        ({}, 1 / 12),
        ({"0": [3.0, 1.0]}, 1 / 14),
    ],
)
def test_vade_draws_from_the_posterior(counts: dict[str, list[float]], mean: float) -> None:
    pool, values = pool_of(0, PROMPTS[:1]), []
    pool.memory["vade"] = counts
    for _ in range(40):
        member("vade")(pool, 100)
        values.append(pool.memory["metrics"]["vade/value"])
        pool.drawn()
    assert sum(values) / 40 == pytest.approx(mean, rel=0.04)


MANY = [
    Prompt(id=str(i), text=f"{i}?", answer="1", task="arithmetic", source="test")
    for i in range(160)
]


def chance(prompt: Prompt) -> float:
    """Seven in eight are hopeless or trivial, by their place on the circle."""
    return 0.4 if math.cos(int(prompt.id)) > 0.92 else float(math.sin(int(prompt.id)) > 0) * 0.98


def seen(pool: Pool, count: int) -> Pool:
    """The pool, told of the first prompts' chances."""
    pool.observe([group(p, [chance(p)]) for p in MANY[:count]], step=0)
    return pool


def kept(pool: Pool, sample: Callable[..., list[Prompt]], steps: int) -> list[float]:
    """The share of groups with signal in each step, by a policy that does not learn."""
    rng, shares = random.Random(5), []
    for step in range(steps):
        drawn = sample(pool, 16)
        pool.drawn()
        groups = [group(p, [float(rng.random() < chance(p)) for _ in range(8)]) for p in drawn]
        pool.observe(groups, step)
        shares.append(sum(len({r.reward for r in g}) > 1 for g in groups) / 16)
    return shares


@pytest.mark.parametrize(("name", "gain"), [("vade", 1.5), ("dots", 1.5)])
def test_groups_without_signal_become_fewer(name: str, gain: float) -> None:
    plain = kept(pool_of(0, MANY), member("uniform"), 24)
    chosen = kept(pool_of(0, MANY), member(name), 24)
    assert sum(chosen[-12:]) > gain * sum(plain[-12:])


def test_vade_knows_its_prompts_and_still_tries_new_ones() -> None:
    pool = pool_of(0, MANY)
    kept(pool, member("vade"), 40)
    counts = pool.memory["vade"]
    rates = torch.tensor([(a + 1) / (a + b + 2) for a, b in counts.values()])
    truth = torch.tensor([chance(MANY[int(key)]) for key in counts])
    assert correlation(rates, truth) > 0.8
    assert len(counts) > 120
    assert set(pool.memory["metrics"]) == {
        "vade/posterior_mean",
        "vade/value",
        "vade/unseen",
        "vade/seen",
    }


def test_dots_by_hand() -> None:
    weights = preference(torch.tensor([0.5, 0.6, 0.9]), 0.1).exp()
    shares = (weights / weights.sum()).tolist()
    assert shares == pytest.approx([0.7214, 0.2654, 0.0132], abs=1e-4)
    # Scores of 0 and ln 3 after the division by sqrt(4).
    keys = torch.tensor([[0.0, 0, 0, 0], [2 * math.log(3), 0, 0, 0]])
    query = torch.tensor([[1.0, 0, 0, 0]])
    rates = torch.tensor([1.0, 0.2])
    assert attended(query, keys, rates).item() == pytest.approx(0.25 + 0.75 * 0.2)
    alone = attended(keys, keys, rates, among_themselves=True)
    assert alone.tolist() == pytest.approx([0.2, 1.0])
    # logit(0.8) / 2 = ln 2.
    flat = calibrated(torch.tensor([0.8]), torch.tensor(2.0), torch.tensor(0.0))
    assert flat.item() == pytest.approx(2 / 3)


def test_dots_draws_by_weight_without_replacement() -> None:
    rates = torch.tensor([0.5, 0.6, 0.9])
    rng = torch.Generator().manual_seed(0)
    orders = [drawn_order(rates, 0.1, rng) for _ in range(4000)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert sum(order[0] == 0 for order in orders) / 4000 == pytest.approx(0.7214, abs=0.03)
    second = [order[1] for order in orders if order[0] == 0]
    assert second.count(1) / len(second) == pytest.approx(0.9526, abs=0.02)
    sharp = drawn_order(torch.tensor([1.0, 0.51, 0.0, 0.5]), 1e-3, rng)
    assert set(sharp[:2]) == {1, 3}


def test_dots_keeps_the_newest_rate_of_each_prompt() -> None:
    known = newest([["a", 0.5], ["b", 1.0]], [Seen("a", [0.0, 1.0, 1.0, 1.0]), Seen("c", [])], 2)
    assert known == [["b", 1.0], ["a", 0.75]]
    assert newest(known, [Seen("d", [-4.0]), Seen("e", [9.0])], 2) == [["d", 0.0], ["e", 1.0]]


def test_dots_predicts_prompts_that_it_has_not_seen() -> None:
    vectors = standardised(embed(MANY))
    truth = torch.tensor([chance(prompt) for prompt in MANY])
    rng = torch.Generator().manual_seed(0)
    rates, metrics = predict(vectors, vectors[:100], truth[:100], Fitting(32, 20, 1e-3), rng)
    assert correlation(rates[100:], truth[100:]) > 0.6
    assert metrics["dots/correlation"] > 0.6


def test_dots_never_draws_a_prompt_twice_between_two_fits() -> None:
    pool, drawn = seen(pool_of(0, MANY), 40), []
    sample = member("dots", every=3)
    for _ in range(3):
        drawn += [p.id for p in sample(pool, 20)]
        pool.drawn()
    assert len(set(drawn)) == 60


def test_dots_fits_each_rate_from_the_others() -> None:
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 32, generator=rng)
    truth = (3 * vectors[:, 0]).sigmoid()
    rates, _ = predict(vectors, vectors[:100], truth[:100], Fitting(32, 40, 1e-2), rng)
    assert correlation(rates[100:], truth[100:]) > 0.7


def test_dots_finds_no_correlation_where_there_is_none() -> None:
    rng = torch.Generator().manual_seed(0)
    vectors, rates = torch.randn(500, 64, generator=rng), torch.rand(500, generator=rng)
    _, metrics = predict(vectors, vectors, rates, Fitting(64, 5, 1e-3), rng)
    assert abs(metrics["dots/correlation"]) < 0.3


@pytest.mark.parametrize("seed", range(5))
def test_dots_draws_a_share_of_any_difficulty_and_nothing_twice(seed: int) -> None:
    pool = seen(pool_of(seed, MANY[:40]), 40)
    drawn = member("dots", explore=0.5)(pool, 20)
    assert pool.cursor == 10
    assert drawn[:10] == Pool(MANY[:40], seed).first(10)
    assert len({p.id for p in drawn}) == 20


def test_dots_begins_with_as_many_references_as_it_keeps() -> None:
    pool = seen(pool_of(0, MANY), 8)
    member("dots", references=8, fewest=64)(pool, 4)
    assert pool.memory["dots"]["due"] == 2


def test_dots_leaves_the_global_random_numbers_alone() -> None:
    pool = pool_of(0)
    pool.observe([group(p, [1.0, 0.0]) for p in PROMPTS], step=0)
    before = torch.random.get_rng_state()
    member("dots")(pool, 4)
    assert pool.memory["dots"]["due"] == 2
    assert torch.equal(before, torch.random.get_rng_state())


def test_dots_wants_embeddings() -> None:
    pool = Pool(PROMPTS, 0)
    pool.observe([group(p, [1.0, 0.0]) for p in PROMPTS], step=0)
    with pytest.raises(ConfigError, match="no embeddings"):
        member("dots")(pool, 4)
