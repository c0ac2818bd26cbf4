"""Laws that every critic keeps, and what the learning ones learn."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.policies import chat_ids
from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from posttrain.rl.critics import CRITICS, Critic
from posttrain.rl.critics.mini_ensemble import joined, shards
from posttrain.rl.critics.value_model import Facts, ValueModel, square_error
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Scored, Values
from posttrain.rl.transforms import ADVANTAGE_TRANSFORMS

LEARNING = sorted(CRITICS.keys() - {"none"})


def prompt(number: int) -> Prompt:
    text = f"{number} + 1 = ?"
    return Prompt(id=str(number), text=text, answer="1", task="arithmetic", source="test")


def response(number: int, length: int, reward: float, **about: Any) -> Rollout:
    source = random.Random(f"{number}/{length}/{reward}")
    ids = tuple(source.randrange(300, 400) for _ in range(length))
    return Rollout(prompt(number), "", ids, (-1.0,) * length, False, reward=reward, **about)


GROUPS: list[Group] = [
    (response(1, 3, 1.0), response(1, 7, 0.0), response(1, 2, 0.0)),
    (response(22, 5, 1.0), response(22, 1, 1.0)),
]

Make = Callable[..., Critic]


@pytest.fixture
def make(tiny_policy: Path) -> Make:
    def critic(name: str, seed: int = 0, **options: Any) -> Critic:
        return build(CRITICS, Plugin(name=name, options=options))(tiny_policy, seed)

    return critic


@pytest.fixture
def make_model(tiny_policy: Path) -> Callable[..., ValueModel]:
    def model(seed: str = "0", **options: Any) -> ValueModel:
        sizes = {"layers": 0, "learning_rate": 1e-3, "micro_batch_tokens": 8192}
        return ValueModel(tiny_policy, seed, **(sizes | options))

    return model


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize(
    "groups",
    [
        GROUPS,
        [],
        [()],
        [(response(1, 4, 1.0),)],
        [(response(1, 0, 0.0), response(1, 0, 1.0))],
        [(response(1, 0, 0.0), response(1, 3, 0.0, source="external"))],
        [(response(1, 4, 1.0, acted=(True, False, False, True)), response(1, 2, 1.0))],
    ],
)
def test_finite_values_for_every_token(make: Make, name: str, groups: list[Group]) -> None:
    critic = make(name, learning_rate=1e-2) if name in LEARNING else make(name)
    for _ in range(2):
        values = critic.assess(groups)
        lengths = [len(rollout.tokens) for group in groups for rollout in group]
        for rows in values or ():
            assert [len(row) for row in rows] in (lengths, [])
            assert all(row.isfinite().all() for row in rows)
        assert all(math.isfinite(value) for value in critic.metrics().values())


@pytest.mark.parametrize("name", CRITICS)
def test_a_restored_critic_goes_on_in_the_same_bits(make: Make, name: str, tmp_path: Path) -> None:
    first = make(name)
    first.assess(GROUPS)
    save_checkpoint(tmp_path, Checkpoint(1, first.tensors(), {}))
    found = load_checkpoint(tmp_path)
    assert found is not None
    second = make(name)
    second.restore(found.tensors)
    for groups in (GROUPS[::-1], GROUPS):
        expected, given = first.assess(groups), second.assess(groups)
        assert first.metrics() == second.metrics()
        if expected is not None and given is not None:
            assert torch.equal(torch.cat(expected.mean), torch.cat(given.mean))
    assert first.tensors().keys() == second.tensors().keys()
    assert all(torch.equal(value, second.tensors()[key]) for key, value in first.tensors().items())


@pytest.mark.parametrize("name", LEARNING)
def test_critics_learn_what_prompts_are_worth(make: Make, name: str) -> None:
    groups: list[Group] = [
        (response(1, 3, 1.0), response(1, 5, 1.0)),
        (response(22, 4, 0.0), response(22, 2, 0.0)),
    ]
    critic = make(name, learning_rate=1e-2)
    critic.assess(groups)
    before = critic.metrics()
    for _ in range(12):
        critic.assess(groups)
    after = critic.metrics()
    assert after["critic/loss"] < 0.2 * before["critic/loss"]
    assert after["critic/explained_variance"] > 0.7 > before["critic/explained_variance"]
    assert after["critic/value"] == pytest.approx(8 / 14, abs=0.2)


@pytest.mark.parametrize("name", LEARNING)
def test_fewer_layers_and_other_seeds_make_other_critics(make: Make, name: str) -> None:
    def said(**options: Any) -> torch.Tensor:
        values = make(name, **options).assess(GROUPS)
        assert values is not None
        return torch.cat(values.mean)

    assert torch.equal(said(), said())
    assert not torch.equal(said(), said(seed=1))
    assert not torch.equal(said(), said(layers=1))
    assert len(make(name, layers=1).tensors()) < len(make(name).tensors())
    with pytest.raises(ConfigError, match="at most 2"):
        make(name, layers=3)


def test_a_single_critic_answers_before_it_learns(make: Make) -> None:
    critic = make("single", learning_rate=1e-2, epochs=3)
    asked = make("single").assess(GROUPS)
    values = critic.assess(GROUPS)
    later = critic.assess(GROUPS)
    assert values is not None
    assert asked is not None
    assert later is not None
    assert values.spread == []
    assert torch.equal(torch.cat(values.mean), torch.cat(asked.mean))
    assert not torch.equal(torch.cat(values.mean), torch.cat(later.mean))


def test_metrics_are_of_the_values_and_the_returns(make: Make) -> None:
    critic = make("single", gamma=0.5)
    values = critic.assess([(response(1, 3, 1.0), response(1, 2, 0.0))])
    assert values is not None
    value, wanted = torch.cat(values.mean), torch.tensor([0.25, 0.5, 1.0, 0.0, 0.0]).double()
    assert critic.metrics() == pytest.approx(
        {
            "critic/loss": float((value - wanted).square().mean()),
            "critic/explained_variance": float(
                1 - (wanted - value).var(correction=0) / wanted.var(correction=0)
            ),
            "critic/value": float(value.mean()),
        }
    )


def plain_values(model: ValueModel, rollout: Rollout) -> torch.Tensor:
    """By one pass over prompt and response, with no cache and nobody beside."""
    ids = chat_ids(model.tokenizer, rollout.prompt.text)
    states = model.backbone(torch.tensor([[*ids, *rollout.tokens]])).last_hidden_state
    return model.head(states)[0, len(ids) - 1 : -1, 0]


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 8192])
def test_values_are_read_before_their_token(
    make_model: Callable[..., ValueModel], micro_batch_tokens: int
) -> None:
    model = make_model(micro_batch_tokens=micro_batch_tokens)
    rollouts = [rollout for group in [*GROUPS, GROUPS[0]] for rollout in group]
    for values, rollout in zip(model.values(rollouts), rollouts, strict=True):
        assert torch.allclose(values.float(), plain_values(model, rollout), atol=1e-5)


@pytest.mark.parametrize("micro_batch_tokens", [1, 8192])
def test_one_step_is_one_of_adamw_on_the_mean_square(
    make_model: Callable[..., ValueModel], micro_batch_tokens: int
) -> None:
    """The environment's words and another writer's are no lesson."""
    model, twin = make_model(micro_batch_tokens=micro_batch_tokens), make_model()
    own = (True, True, False, False, False, True, True)
    talk, worked = replace(GROUPS[0][1], acted=own, reward=1.0), GROUPS[0][2]
    facts = Facts.of([(GROUPS[0][0], talk, replace(worked, source="external"))], 1.0)
    model.learn(facts)
    first = (plain_values(twin, GROUPS[0][0]) - 1).square()
    second = (plain_values(twin, talk)[list(own)] - 1).square()
    (torch.cat([first, second]).mean()).backward()
    torch.nn.utils.clip_grad_norm_(twin.weights.values(), 1.0)
    twin.optimizer.step()
    for name, weight in model.weights.items():
        # Adam's first step is the gradient's sign, so gradients near 0 may step either way.
        gradient = twin.weights[name].grad
        sure = gradient.abs() > 1e-5 if gradient is not None else torch.zeros(1).bool()
        assert torch.allclose(weight[sure], twin.weights[name][sure], atol=1e-5), name


@pytest.mark.parametrize(
    ("value", "clip", "error", "slope"),
    [
        (0.5, None, 0.25, -1.0),
        (0.5, 0.1, 0.49, 0.0),
        (0.25, 0.1, 0.5625, -1.5),
        (-0.5, 0.1, 2.25, -3.0),
    ],
)
def test_clipped_error_by_hand(
    value: float, clip: float | None, error: float, slope: float
) -> None:
    """The old value is 0.2 and the return 1: what went far enough the right way is left alone."""
    given = torch.tensor(value, requires_grad=True)
    found = square_error(given, torch.tensor(1.0), torch.tensor(0.2), clip)
    found.backward()
    assert found.item() == pytest.approx(error)
    assert given.grad is not None
    assert given.grad.item() == pytest.approx(slope)


def test_the_clip_is_felt_from_the_second_epoch(make_model: Callable[..., ValueModel]) -> None:
    facts = Facts.of(GROUPS, 1.0)

    def learnt(epochs: int, clip: float | None) -> torch.Tensor:
        model = make_model(learning_rate=1e-2)
        model.learn(facts, epochs=epochs, clip=clip)
        return model.head.weight

    assert torch.equal(learnt(1, 1e-6), learnt(1, None))
    assert not torch.equal(learnt(2, 1e-6), learnt(2, None))


def test_nothing_to_learn_leaves_the_weights_alone(make_model: Callable[..., ValueModel]) -> None:
    model = make_model()
    before = {name: weight.clone() for name, weight in model.weights.items()}
    model.learn(Facts.of([(response(1, 3, 1.0, source="external"),)], 1.0))
    model.learn(Facts.of([], 1.0))
    assert all(torch.equal(weight, before[name]) for name, weight in model.weights.items())


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 8, 9])
def test_shards_are_disjoint_even_and_complete(members: int, size: int) -> None:
    outsider = response(1, 2, 1.0, source="external")
    groups = [(outsider, *[response(g, 2, 0.0)] * size) for g in range(5)]
    found = shards(groups, members)
    places = [place for place in range(5 * (size + 1)) if place % (size + 1)]
    assert sorted(place for shard in found for place in shard) == places
    for group in range(5):
        mine = range(group * (size + 1), (group + 1) * (size + 1))
        counts = [sum(place in mine for place in shard) for shard in found]
        assert max(counts) - min(counts) <= 1
    if size * 5 >= members:
        assert all(found)


def test_a_member_learns_from_its_shard_alone(make: Make) -> None:
    """Member 0 of the first group's rollouts sees the first and the third."""
    plain, changed = make("mini_ensemble"), make("mini_ensemble")
    plain.assess(GROUPS[:1])
    first, second, third = GROUPS[0]
    changed.assess([(first, replace(second, reward=9.0), third)])
    same = {key: torch.equal(t, changed.tensors()[key]) for key, t in plain.tensors().items()}
    assert all(kept for key, kept in same.items() if key.startswith("0/weight"))
    assert not all(kept for key, kept in same.items() if key.startswith("1/weight"))


@pytest.mark.parametrize("members", [2, 3])
def test_members_differ_after_the_first_update(make: Make, members: int) -> None:
    critic = make("mini_ensemble", members=members)
    values = critic.assess(GROUPS)
    assert values is not None
    assert torch.cat(values.spread).min() > 0
    assert critic.metrics()["critic/spread"] == pytest.approx(
        float(torch.cat(values.spread).mean())
    )
    assert critic.metrics()["critic/agreed_exactly"] == 0


def test_asyppo_by_hand() -> None:
    one, two = [0.2, 0.6, 0.5, 0.9, 0.1], [0.2, 0.4, 0.9, 0.8, 0.7]
    values = joined([[torch.tensor(row).double()] for row in (one, two)])
    assert values.mean[0].tolist() == pytest.approx([0.2, 0.5, 0.7, 0.85, 0.4])
    assert values.spread[0].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.05, 0.3])
    given = Scored([(response(1, 5, 1.0),)], values=values)
    plain = ADVANTAGES["gae"](given, whiten=False)
    assert plain.advantages[0].tolist() == pytest.approx([0.8, 0.5, 0.3, 0.15, 0.6])
    found = ADVANTAGE_TRANSFORMS["asyppo_masks"](plain, given)
    assert found.advantages[0].tolist() == pytest.approx([0.0, 0.5, 0.3, 0.15, 0.6])


def test_no_rollouts_are_no_values() -> None:
    assert joined([[], []]) == Values([], [])
