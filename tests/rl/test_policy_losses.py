"""Laws that every policy loss keeps, and the clipped surrogate by hand."""

import math
from dataclasses import replace

import pytest
import torch

from posttrain.plugins import Plugin, build
from posttrain.rl.losses import POLICY_LOSSES, LossBatch, Totals, kl_estimate


def batch(
    ratios: list[list[float]], advantages: list[float], lengths: list[int], longest: int = 10
) -> LossBatch:
    """Old log-probs are -1 everywhere, the ratios are as given."""
    old_BT = torch.full((len(ratios), len(ratios[0])), -1.0, dtype=torch.float64)
    logp_BT = (old_BT + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    mask_BT = torch.arange(old_BT.shape[1]) < torch.tensor(lengths)[:, None]
    totals = Totals(sum(lengths), len(lengths), longest, sum(lengths))
    advantage_B1 = torch.tensor(advantages, dtype=torch.float64)[:, None]
    external_B1 = torch.zeros(len(ratios), 1, dtype=torch.bool)
    return LossBatch(logp_BT, old_BT, advantage_B1, mask_BT, totals, old_BT, external_B1)


TWO_ROWS = batch([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [2.0, -1.0], [1, 3])


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_zero_advantages_have_no_gradient(name: str) -> None:
    given = batch([[0.5, 1.0, 3.0]], [0.0], [3])
    POLICY_LOSSES[name](given).value.backward()
    assert (given.logp_BT.grad == 0).all()


@pytest.mark.parametrize("name", POLICY_LOSSES)
@pytest.mark.parametrize("lengths", [[0, 0], [0, 3], [1, 2]])
def test_finite_for_empty_responses_and_blind_to_padding(name: str, lengths: list[int]) -> None:
    given = batch([[1.1, 0.9, 1.0], [1.2, 1.0, 0.7]], [1.0, -1.0], lengths)
    found = POLICY_LOSSES[name](given)
    found.value.backward()
    gradient_BT = given.logp_BT.grad
    assert found.value.isfinite()
    assert gradient_BT.isfinite().all()
    assert (gradient_BT[~given.mask_BT] == 0).all()
    assert all(value.isfinite() for value in found.metrics.values())


@pytest.mark.parametrize("name", POLICY_LOSSES)
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum_norm"])
def test_micro_batches_add_up_to_the_batch(name: str, aggregation: str) -> None:
    given = batch([[1.1, 0.9, 1.0], [1.3, 1.0, 0.7]], [1.0, -1.0], [1, 3])
    loss = build(POLICY_LOSSES, Plugin(name=name, options={"aggregation": aggregation}))
    rows = [
        replace(
            given,
            **{
                name: getattr(given, name)[i : i + 1]
                for name in vars(given)
                if isinstance(getattr(given, name), torch.Tensor)
            },
        )
        for i in range(2)
    ]
    whole, parts = loss(given), [loss(row) for row in rows]
    assert whole.value.item() == pytest.approx(sum(part.value.item() for part in parts))
    for key, value in whole.metrics.items():
        assert value.item() == pytest.approx(sum(part.metrics[key].item() for part in parts))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", (-2 + 1 + 1 + 1) / 4),
        ("sequence_mean", (-2 + 1) / 2),
        ("token_sum_norm", (-2 + 1 + 1 + 1) / (2 * 10)),
    ],
)
def test_aggregation_by_hand(aggregation: str, expected: float) -> None:
    """Rows of 1 and 3 tokens with losses -2 and 1 a token; the longest allowed is 10."""
    loss = build(POLICY_LOSSES, Plugin(name="clip", options={"aggregation": aggregation}))
    assert loss(TWO_ROWS).value.item() == pytest.approx(expected)


def test_token_and_sequence_means_of_the_published_example() -> None:
    """Rows [2], [0, 0, 1]: token mean 0.75, sequence mean 7/6 (Lite PPO, arXiv:2508.08221)."""
    given = batch([[1.0] * 3] * 2, [0.0, 0.0], [1, 3])
    given = replace(given, penalty_BT=torch.tensor([[2.0, 9, 9], [0, 0, 1]]).double())
    token = build(POLICY_LOSSES, Plugin(name="clip"))
    sequence = build(POLICY_LOSSES, Plugin(name="clip", options={"aggregation": "sequence_mean"}))
    assert token(given).value.item() == pytest.approx(0.75)
    assert sequence(given).value.item() == pytest.approx((2 + 1 / 3) / 2)


@pytest.mark.parametrize(
    ("ratio", "advantage", "options", "expected", "has_gradient"),
    [
        (1.1, 1.0, {}, -1.1, True),
        (1.5, 1.0, {}, -1.2, False),
        (1.25, 1.0, {"clip_high": 0.28}, -1.25, True),
        (0.5, 1.0, {}, -0.5, True),
        (0.5, -1.0, {}, 0.8, False),
        (1.5, -1.0, {}, 1.5, True),
        (5.0, -1.0, {}, 5.0, True),
        (5.0, -1.0, {"dual_clip": 3.0}, 3.0, False),
        (5.0, 1.0, {"dual_clip": 3.0}, -1.2, False),
    ],
)
def test_clip_by_hand(
    ratio: float, advantage: float, options: dict[str, object], expected: float, has_gradient: bool
) -> None:
    given = batch([[ratio]], [advantage], [1])
    found = build(POLICY_LOSSES, Plugin(name="clip", options=options))(given).value
    found.backward()
    assert found.item() == pytest.approx(expected)
    assert (given.logp_BT.grad != 0).item() is has_gradient


def test_clip_fractions_count_only_what_clipping_stops() -> None:
    given = batch([[1.5, 0.5], [1.5, 0.5]], [1.0, -1.0], [2, 2])
    metrics = POLICY_LOSSES["clip"](given).metrics
    assert metrics["clip/high"].item() == 0.25
    assert metrics["clip/low"].item() == 0.25
    assert metrics["ratio/mean"].item() == pytest.approx(1.0)


def test_a_runaway_ratio_stays_finite() -> None:
    given = batch([[1.0]], [-1.0], [1])
    given = replace(given, logp_BT=given.old_logp_BT + 1000.0)
    assert POLICY_LOSSES["clip"](given).value.item() == pytest.approx(math.exp(20))


def test_kl_estimators_by_hand() -> None:
    """Policy log-prob -1, reference -2: the log-ratio is 1."""
    logp, reference = torch.tensor([-1.0]), torch.tensor([-2.0])
    found = [kl_estimate(logp, reference, kind).item() for kind in ("k1", "k2", "k3")]
    assert found == pytest.approx([1.0, 0.5, math.exp(-1) - 1 + 1])
    assert kl_estimate(logp, logp, "k3").item() == 0
