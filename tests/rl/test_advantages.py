"""Laws that every advantage estimator keeps, and one worked example of each."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Estimate, Scored, Values

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")
LENGTHS = (1, 3, 2)


class Still:
    """A policy that is where it was, and all of whose gradients are alike."""

    def logps(self, rollouts: list[Rollout]) -> list[torch.Tensor]:
        return [torch.tensor(rollout.behaviour_logps).double() for rollout in rollouts]

    reference_logps = logps

    def gradient_norms(self, rollouts: list[Rollout]) -> list[float]:
        return [1.0 for _ in rollouts]


def group(*rewards: float) -> Group:
    """Responses of one to three tokens."""
    lengths = [LENGTHS[i % 3] for i in range(len(rewards))]
    return tuple(
        Rollout(PROMPT, "", (1,) * n, (-1.0,) * n, False, reward=reward)
        for n, reward in zip(lengths, rewards, strict=True)
    )


def scored(*rewards: list[float]) -> Scored:
    """Groups with these rewards; the critic, where asked, expects 0.5 everywhere."""
    groups = [group(*each) for each in rewards]
    flat = [torch.full((len(r.tokens),), 0.5).double() for g in groups for r in g]
    return Scored(groups, values=Values(flat, [torch.zeros_like(v) for v in flat]), policy=Still())


def estimate(name: str, given: Scored, **options: object) -> Estimate:
    return build(ADVANTAGES, Plugin(name=name, options=options))(given)


def numbers(found: Estimate) -> list[float]:
    """The advantage of each rollout's first token."""
    return [float(advantage[0]) for advantage in found.advantages]


CRITICAL = {"gae"}
"""Estimators that compare with a critic, and not within a group."""

WHOLE_BATCH = {"group_mean_batch_std", "reinforce_pp", *CRITICAL}
"""Estimators that look beyond the group."""


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - CRITICAL))
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3, 1e8])
@pytest.mark.parametrize("group_size", [1, 2, 3, 8])
def test_all_equal_rewards_give_exact_zeros(name: str, value: float, group_size: int) -> None:
    found = estimate(name, scored(*[[value] * group_size] * 3))
    assert all((advantage == 0).all() for advantage in found.advantages)


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_finite_one_for_each_rollout_or_token(name: str, group_size: int) -> None:
    rewards = torch.rand(4, group_size, generator=torch.Generator().manual_seed(0)).tolist()
    given = scored(*rewards)
    found = estimate(name, given)
    assert len(found.advantages) == 4 * group_size
    for advantage, rollout in zip(found.advantages, given.rollouts, strict=True):
        assert advantage.isfinite().all()
        assert len(advantage) in (1, len(rollout.tokens))
    assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - WHOLE_BATCH))
def test_other_groups_change_nothing(name: str) -> None:
    alone = estimate(name, scored([0.0, 0.25, 1.0]))
    beside = estimate(name, scored([0.0, 0.25, 1.0], [1.0, 1.0, 0.0]))
    assert numbers(beside)[:3] == numbers(alone)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_a_better_reward_never_gets_a_lower_advantage(name: str) -> None:
    found = torch.tensor(numbers(estimate(name, scored([0.0, 0.25, 0.5, 1.0]))))
    assert (found.diff() >= 0).all()
    assert found[-1] > found[0]


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - CRITICAL))
def test_a_shift_of_all_rewards_changes_nothing(name: str) -> None:
    found = numbers(estimate(name, scored([0.0, 0.25, 0.5, 1.0])))
    shifted = numbers(estimate(name, scored([7.0, 7.25, 7.5, 8.0])))
    assert shifted == pytest.approx(found)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_groups_may_differ_in_size(name: str) -> None:
    given = scored([1.0], [0.0, 1.0], [], [1.0, 0.0, 0.0])
    assert len(estimate(name, given).advantages) == 6


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", {}, [1.5, -0.5, -0.5, -0.5]),
        ("grpo", {"scale": "population_std"}, [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ("grpo", {"scale": "none"}, [0.75, -0.25, -0.25, -0.25]),
        ("grpo", {"eps": 0.5}, [0.75, -0.25, -0.25, -0.25]),
        ("rloo", {}, [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("dr_grpo", {}, [0.75, -0.25, -0.25, -0.25]),
        ("rl_plus", {"scale": "sample_std"}, [1.5, -0.5, -0.5, -0.5]),
        ("reinforce_pp", {}, [2.267787, -0.377964, -0.377964, -0.377964]),
        ("reinforce_pp", {"divide": False}, [6 / 7, -1 / 7, -1 / 7, -1 / 7]),
        ("reinforce_pp", {"over": "sequences"}, [1.5, -0.5, -0.5, -0.5]),
    ],
)
def test_one_of_four_right(name: str, options: dict[str, object], expected: list[float]) -> None:
    found = estimate(name, scored([1.0, 0.0, 0.0, 0.0]), **options)
    assert numbers(found) == pytest.approx(expected, abs=1e-5)


NEUTRAL = [
    ("chunk_discount", {"gamma": 1.0}, "dr_grpo", {}),
    ("rl_plus", {}, "dr_grpo", {}),
    ("rl_plus", {"scale": "sample_std"}, "grpo", {}),
]


@pytest.mark.parametrize(("name", "options", "parent", "parents"), NEUTRAL)
def test_neutral_settings_are_the_parent_bit_for_bit(
    name: str, options: dict[str, object], parent: str, parents: dict[str, object]
) -> None:
    given = scored([0.1, 0.7, 0.2], [0.3] * 3, [1.0], [0.9, 0.4])
    assert numbers(estimate(name, given, **options)) == numbers(estimate(parent, given, **parents))


def test_a_batch_of_one_group_makes_the_batch_std_the_groups() -> None:
    given = scored([0.1, 0.7, 0.2, 0.9])
    assert numbers(estimate("group_mean_batch_std", given)) == numbers(estimate("grpo", given))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_empty_responses_are_no_trouble(name: str) -> None:
    empty = replace(group(0.0)[0], tokens=(), behaviour_logps=())
    full = group(1.0, 0.0)
    values = [torch.full((n,), 0.5).double() for n in (0, 1, 3)]
    given = Scored([(empty, *full)], values=Values(values, values), policy=Still())
    found = estimate(name, given).advantages
    assert all(advantage.isfinite().all() for advantage in found)
    assert len(found[0]) <= 1
    assert found[1][0] > 0


def test_lite_ppo_by_hand() -> None:
    found = estimate("group_mean_batch_std", scored([1.0, 0, 0, 0], [1.0, 1, 1, 0]))
    first, second = [1.4031, *[-0.4677] * 3], [*[0.4677] * 3, -1.4031]
    assert numbers(found) == pytest.approx(first + second, abs=1e-4)
    assert found.metrics["advantage/batch_std"] == pytest.approx(0.5345, abs=1e-4)
    centred = estimate(
        "group_mean_batch_std", scored([1.0, 0, 0, 0], [1.0, 1, 1, 0]), spread="centred"
    )
    assert numbers(centred)[0] == pytest.approx(0.75 / math.sqrt(1.5 / 7), abs=1e-4)


def test_reinforce_pp_discounts_then_whitens_over_tokens() -> None:
    given = scored([1.0, 0.0])
    found = torch.cat(estimate("reinforce_pp", given, gamma=0.5, divide=False).advantages)
    assert found.tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    long = Scored([group(0.0, 1.0)])
    rows = estimate("reinforce_pp", long, gamma=0.5, over="sequences", divide=False).advantages
    assert rows[1].tolist() == pytest.approx([0.125, 0.25, 0.5])


def test_reinforce_pp_with_the_groups_mean() -> None:
    given = scored([1.0, 0.0, 1.0], [0.0, 0.0, 0.0])
    found = estimate("reinforce_pp", given, baseline="group", divide=False)
    # Centred: 1/3 on 1 token, -2/3 on 3, 1/3 on 2, and 0 on 6: the mean over tokens is -1/12.
    wanted = [1 / 3 + 1 / 12, -2 / 3 + 1 / 12, 1 / 3 + 1 / 12, 1 / 12, 1 / 12, 1 / 12]
    assert numbers(found) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("rewards", "options", "expected"),
    [
        ([1.0, 0.5, 0.0], {}, [1.497006, 0.0, -1.497006]),
        ([1.0, 0.0, 0.0], {"guard": "none"}, [3000.0, 0.0, 0.0]),
        ([1.0, 0.0, 0.0], {"guard": "floor"}, [12.0, 0.0, 0.0]),
        ([1.0, 0.0, 0.0], {"guard": "clip"}, [5.0, 0.0, 0.0]),
        ([1.0, 1.0, 1.0], {"guard": "none"}, [0.0, 0.0, 0.0]),
        (
            [0.0, 1.0, 0.5, 0.25],
            {},
            [-0.25 / 0.251 * 4 / 3, 0.75 / 0.251 * 4 / 3, 0.25 / 0.251 * 4 / 3, 0.0],
        ),
    ],
)
def test_median_by_hand(
    rewards: list[float], options: dict[str, object], expected: list[float]
) -> None:
    assert numbers(estimate("median", scored(rewards), **options)) == pytest.approx(expected)


def test_the_median_is_dropped_and_has_no_advantage() -> None:
    given = scored([1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [2.0])
    found = estimate("median", given)
    assert sorted(found.dropped) == [2, 4, 6]
    assert set(found.dropped.values()) == {"pivot"}
    assert all(numbers(found)[place] == 0 for place in found.dropped)
    assert found.metrics["median/guarded"] == pytest.approx(1 / 3)


def test_the_median_errs_less_often_than_the_mean_on_the_sign() -> None:
    """Two learnt from: rewards are normal around 0, so the right sign is the reward's own."""
    noise = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)).double()
    found = estimate("median", scored(*noise.tolist()))
    kept = [place for place in range(6000) if place not in found.dropped]
    advantages = torch.tensor(numbers(found))
    wrong_median = (advantages[kept] * noise.flatten()[kept] < 0).double().mean()
    pairs = noise[:, :2]
    wrong_mean = ((pairs - pairs.mean(dim=1, keepdim=True)) * pairs < 0).double().mean()
    assert len(kept) == 2 * 2000
    assert wrong_median < 0.8 * wrong_mean


def against_critic(rollout: Rollout, values: list[float], **options: object) -> list[float]:
    row = torch.tensor(values).double()
    given = Scored([(rollout,)], values=Values([row], [torch.zeros_like(row)]))
    return [float(x) for x in estimate("gae", given, **options).advantages[0]]


def response(length: int, reward: float, acted: tuple[bool, ...] = ()) -> Rollout:
    return Rollout(PROMPT, "", (1,) * length, (-1.0,) * length, False, acted=acted, reward=reward)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.8, 0.5, 0.3, 0.15, 0.6]),
        ({"lam": 0.0}, [0.3, 0.2, 0.15, -0.45, 0.6]),
        ({"lam": 0.5, "gamma": 0.9}, [0.301615, 0.1147, -0.034, -0.22, 0.6]),
    ],
)
def test_gae_by_hand(options: dict[str, object], expected: list[float]) -> None:
    mean = [0.2, 0.5, 0.7, 0.85, 0.4]
    found = against_critic(response(5, 1.0), mean, whiten=False, **options)
    assert found == pytest.approx(expected, abs=1e-4)


def test_gae_steps_over_the_environments_words() -> None:
    own = (True, True, False, False, True, False)
    found = against_critic(
        response(6, 1.0, own), [0.2, 0.5, 9.0, 9.0, 0.7, 9.0], whiten=False, gamma=0.9, lam=0.8
    )
    plain = against_critic(response(3, 1.0), [0.2, 0.5, 0.7], whiten=False, gamma=0.9, lam=0.8)
    assert found == [plain[0], plain[1], 0.0, 0.0, plain[2], 0.0]


def test_gae_whitens_over_the_policys_tokens() -> None:
    found = against_critic(response(3, 1.0, (True, False, True)), [0.2, 9.0, 0.6])
    assert found == pytest.approx([math.sqrt(0.5), 0.0, -math.sqrt(0.5)], abs=1e-6)


def test_gae_asks_for_a_critic() -> None:
    with pytest.raises(ConfigError, match="critic: single"):
        estimate("gae", Scored([group(1.0, 0.0)]))


def test_chunks_are_discounted_by_interactions() -> None:
    own = (True, True, False, True, False, False, True)
    given = Scored([(response(7, 1.0, own),)])
    found = estimate("chunk_discount", given, baseline="none")
    wanted = [0.9025, 0.9025, 0.0, 0.95, 0.0, 0.0, 1.0]
    assert found.advantages[0].tolist() == pytest.approx(wanted)
    assert found.metrics == {"chunk/number": 3.0}


class Drifted(Still):
    """The second response is twice as likely as when it was drawn."""

    def logps(self, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
        return [
            torch.tensor(rollout.behaviour_logps).double() + math.log(1 + i) / len(rollout.tokens)
            for i, rollout in enumerate(rollouts)
        ]


def test_opob_by_hand() -> None:
    given = Scored([group(1.0, 0.0)], policy=Drifted())
    assert numbers(estimate("opob", given, scale="none")) == pytest.approx([0.8, -0.2])
    scaled = estimate("opob", given)
    assert numbers(scaled) == pytest.approx([1.6, -0.4], abs=1e-5)
    assert scaled.metrics["opob/shift"] == pytest.approx(0.3)
    # Lengths 1 and 3: the weights 1 and 4 become 1 and 4/9.
    normed = estimate("opob", given, scale="none", length_norm=True)
    assert numbers(normed) == pytest.approx([4 / 13, -9 / 13])


def test_opob_without_gradients_takes_the_mean() -> None:
    class Flat(Still):
        def gradient_norms(self, rollouts: Sequence[Rollout]) -> list[float]:
            return [0.0 for _ in rollouts]

    given = Scored([group(1.0, 0.0)], policy=Flat())
    assert numbers(estimate("opob", given, scale="none")) == [0.5, -0.5]


def test_opob_asks_only_about_groups_with_a_signal() -> None:
    asked: list[int] = []

    class Counting(Still):
        def gradient_norms(self, rollouts: Sequence[Rollout]) -> list[float]:
            asked.append(len(rollouts))
            return [1.0 for _ in rollouts]

    estimate("opob", Scored([group(1.0, 1.0), group(1.0, 0.0)], policy=Counting()))
    assert asked == [2]


@pytest.mark.parametrize(
    ("own", "options", "expected"),
    [
        ([1.0, 0.0, 0.0, 0.0], {}, [0.75, -0.25, -0.25, -0.25, 0.75]),
        ([1.0, 0.0, 0.0, 0.0], {"scale": "sample_std"}, [1.5, -0.5, -0.5, -0.5, 1.5]),
        ([0.0, 0.0], {}, [0.0, 0.0, 1.0]),
        ([0.0, 0.0], {"scale": "sample_std"}, [0.0, 0.0, 1.0]),
        ([0.1, 0.1, 0.1], {}, [0.0, 0.0, 0.0, 0.9]),
        ([], {}, [0.0]),
    ],
)
def test_rl_plus_measures_by_the_policys_own(
    own: list[float], options: dict[str, object], expected: list[float]
) -> None:
    *mine, worked = group(*own, 1.0)
    given = Scored([(*mine, replace(worked, source="external"))])
    found = estimate("rl_plus", given, **options)
    assert numbers(found) == pytest.approx(expected, abs=1e-5)
    assert numbers(found)[:-1].count(0.0) == expected[:-1].count(0.0)
    assert found.metrics["advantage/external"] == pytest.approx(expected[-1], abs=1e-5)
