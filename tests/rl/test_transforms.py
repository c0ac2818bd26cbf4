"""Laws that every advantage transform keeps, and the worked examples of each."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Estimate, Scored, Values
from posttrain.rl.transforms import ADVANTAGE_TRANSFORMS

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")

NEUTRAL: dict[str, dict[str, Any]] = {
    "bounded": {"limit": math.inf},
    "mgpo": {"lam": 0.0},
    "ace": {"alpha": 0.0},
    "asyppo_masks": {"agreed": 0.0, "disputed": 0.0},
}
"""Options that leave an estimate as it was."""


class Moved:
    """A policy whose responses are `gain` nats likelier than at the start of the run."""

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def reference_logps(self, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
        return [torch.tensor(rollout.behaviour_logps).double() for rollout in rollouts]

    def logps(self, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
        then = self.reference_logps(rollouts)
        return [logp_T + self.gain / max(1, len(logp_T)) for logp_T in then]

    def gradient_norms(self, rollouts: Sequence[Rollout]) -> list[float]:
        return [1.0 for _ in rollouts]


def response(reward: float, length: int = 2, **about: Any) -> Rollout:
    return Rollout(PROMPT, "", (1,) * length, (-1.0,) * length, False, reward=reward, **about)


def scored(*groups: Group, gain: float = 0.5) -> Scored:
    """Groups with a critic whose members differ the more, the later the token."""
    lengths = [len(rollout.tokens) for group in groups for rollout in group]
    rows = list(torch.arange(sum(lengths)).double().split(lengths))
    return Scored(groups, values=Values(rows, rows), policy=Moved(gain))


def changed(name: str, given: Scored, start: Estimate | None = None, **options: Any) -> Estimate:
    transform = build(ADVANTAGE_TRANSFORMS, Plugin(name=name, options=options))
    return transform(start or ADVANTAGES["grpo"](given), given)


def tokens(found: Estimate, given: Scored) -> list[list[float]]:
    """The advantage of each token."""
    pairs = zip(found.advantages, given.rollouts, strict=True)
    return [advantage.expand(len(rollout.tokens)).tolist() for advantage, rollout in pairs]


MIXED = scored(
    (response(1.0), response(0.0, 3), response(0.0, 1)), (response(1.0), response(0.5, 4))
)


@pytest.mark.parametrize("name", ADVANTAGE_TRANSFORMS)
def test_neutral_settings_change_nothing_bit_for_bit(name: str) -> None:
    plain = ADVANTAGES["grpo"](MIXED)
    found = changed(name, MIXED, **NEUTRAL[name])
    assert tokens(found, MIXED) == tokens(plain, MIXED)
    assert not found.dropped
    assert all((weight == 1).all() for weight in found.entropy_weights or ())


@pytest.mark.parametrize("name", ADVANTAGE_TRANSFORMS)
@pytest.mark.parametrize("sizes", [(1,), (2, 1), (3, 3)])
def test_groups_without_signal_stay_without(name: str, sizes: tuple[int, ...]) -> None:
    given = scored(*[tuple(response(1.0) for _ in range(size)) for size in sizes])
    found = changed(name, given)
    assert not any(any(row) for row in tokens(found, given))
    assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("name", ADVANTAGE_TRANSFORMS)
def test_empty_responses_and_lone_ones_stay_finite(name: str) -> None:
    given = scored((response(1.0, 0), response(0.0, 0)), (response(1.0), response(0.0, 0)), ())
    found = changed(name, given)
    assert len(found.advantages) == 4
    assert all(advantage.isfinite().all() for advantage in found.advantages)
    assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("name", ADVANTAGE_TRANSFORMS)
def test_what_was_measured_and_dropped_before_is_kept(name: str) -> None:
    plain = ADVANTAGES["grpo"](MIXED)
    start = plain._replace(dropped={1: "pivot"}, metrics={"before": 2.0})
    found = changed(name, MIXED, start)
    assert found.dropped == {1: "pivot"}
    assert found.metrics["before"] == 2.0
    assert len(found.metrics) > 1


def test_bounded_clamps_and_says_how_many() -> None:
    start = Estimate([torch.tensor([x]).double() for x in (9.0, -7.0, 1.0, 0.0, 2.0)])
    found = changed("bounded", MIXED, start)
    assert [float(a) for a in found.advantages] == [5.0, -5.0, 1.0, 0.0, 2.0]
    assert found.metrics == {"bounded/share": 0.4}


@pytest.mark.parametrize(
    ("rewards", "lam", "weight"),
    [
        ([1, 0, 0, 0], 1.0, 0.8774),
        ([1, 0, 0, 0], 4.0, 0.5926),
        ([1, 1, 0, 0], 4.0, 1.0),
        ([1, 1, 1, 1], 1.0, 0.5),
        ([0.6, 0.5, 0.2, 0.1], 1.0, 0.8774),
    ],
)
def test_mgpo_by_hand(rewards: list[float], lam: float, weight: float) -> None:
    given = scored(tuple(map(response, rewards)))
    found = changed("mgpo", given, Estimate([torch.ones(1).double()] * 4), lam=lam)
    assert [float(a) for a in found.advantages] == pytest.approx([weight] * 4, abs=1e-4)
    assert found.metrics["mgpo/weight"] == pytest.approx(weight, abs=1e-4)


def test_mgpo_counts_only_the_policys_own() -> None:
    given = scored((response(1.0), response(0.0), response(1.0, source="external")))
    found = changed("mgpo", given, Estimate([torch.ones(1).double()] * 3))
    assert [float(a) for a in found.advantages] == [1.0, 1.0, 1.0]
    worked = scored((response(1.0, source="external"),))
    assert changed("mgpo", worked).metrics["mgpo/weight"] == 1.0


@pytest.mark.parametrize(
    ("gain", "options", "factor"),
    [
        (0.0, {}, 1.693147),
        (2.0, {}, 3.126928),
        (-2.0, {}, 1.126928),
        (2.0, {"alpha": 0.5}, 2.063464),
        (50.0, {}, 11.000045),
        (50.0, {"cap": 2.0}, 3.126928),
        (8.0, {"length_norm": True}, 3.126928),
    ],
)
def test_ace_by_hand(gain: float, options: dict[str, float], factor: float) -> None:
    given = scored((response(1.0), response(0.0, 4)), gain=gain)
    plain = ADVANTAGES["dr_grpo"](given)
    found = changed("ace", given, plain, **options)
    assert [float(a) for a in found.advantages] == pytest.approx([0.5, -0.5 * factor], abs=1e-5)
    assert found.metrics["ace/factor"] == pytest.approx(factor, abs=1e-5)
    assert found.metrics["ace/confident"] == (gain > 0)
    assert found.metrics["ace/wrong_magnitude"] == pytest.approx(0.5 * factor, abs=1e-5)


def test_ace_looks_at_the_policys_tokens_and_at_each_advantage() -> None:
    given = scored((response(0.0, 4, acted=(True, False, False, True)),), gain=4.0)
    start = Estimate([torch.tensor([-1.0, 0.0, 0.0, 1.0]).double()])
    found = changed("ace", given, start)
    assert found.advantages[0].tolist() == pytest.approx([-3.126928, 0.0, 0.0, 1.0], abs=1e-5)


def test_ace_asks_nobody_where_nothing_is_wrong() -> None:
    given = Scored([(response(1.0),)])
    start = Estimate([torch.ones(1).double()])
    assert changed("ace", given, start).advantages == start.advantages


def critics(*spread: list[float]) -> Values:
    rows = [torch.tensor(row).double() for row in spread]
    return Values(rows, rows)


def test_asyppo_by_hand() -> None:
    given = Scored([(response(1.0, 5),)], values=critics([0, 0.1, 0.2, 0.05, 0.3]))
    start = Estimate([torch.tensor([0.8, 0.5, 0.3, 0.15, 0.6]).double()])
    found = changed("asyppo_masks", given, start)
    assert found.advantages[0].tolist() == pytest.approx([0.0, 0.5, 0.3, 0.15, 0.6])
    assert found.entropy_weights is not None
    assert found.entropy_weights[0].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert found.metrics == {"mask/agreed": 0.2, "mask/disputed": pytest.approx(0.2)}


@pytest.mark.parametrize("tokens_each", [1, 7, 50])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.29, 0.5, 1.0])
def test_asyppo_masks_the_share_even_where_spreads_tie(tokens_each: int, share: float) -> None:
    rows = [[0.1] * tokens_each, [0.1] * tokens_each]
    given = Scored(
        [(response(1.0, tokens_each), response(0.0, tokens_each))], values=critics(*rows)
    )
    found = changed("asyppo_masks", given, agreed=share, disputed=share)
    zeros = sum(int((a == 0).sum()) for a in found.advantages)
    assert abs(zeros - share * 2 * tokens_each) <= 0.5
    assert found.entropy_weights is not None
    quiet = sum(int((w == 0).sum()) for w in found.entropy_weights)
    assert abs(quiet - share * 2 * tokens_each) <= 0.5


def test_asyppo_ranks_over_the_batch_and_only_the_policys_tokens() -> None:
    spread = critics([0.0, 0.5, 0.4], [0.3, 0.2], [0.9])
    talk = response(1.0, 3, acted=(False, True, True))
    given = Scored([(talk, response(0.0, 2)), (response(0.0, 1),)], values=spread)
    start = Estimate([torch.ones(1).double()] * 3)
    found = changed("asyppo_masks", given, start, agreed=0.4, disputed=0.2)
    assert [a.tolist() for a in found.advantages] == [[1.0, 1.0, 1.0], [0.0, 0.0], [1.0]]
    assert found.entropy_weights is not None
    assert [w.tolist() for w in found.entropy_weights] == [[1.0] * 3, [1.0] * 2, [0.0]]


@pytest.mark.parametrize("values", [None, Values([torch.zeros(2)], [])])
def test_asyppo_asks_for_several_critics(values: Values | None) -> None:
    given = Scored([(response(1.0),)], values=values)
    with pytest.raises(ConfigError, match="mini_ensemble"):
        changed("asyppo_masks", given)
