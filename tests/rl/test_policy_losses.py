"""Laws that every policy loss keeps, and each of them by hand."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.config import RLConfig
from posttrain.rl.experience import Lesson
from posttrain.rl.hooks import UpdateFacts
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES, Loss, LossBatch, Totals, kl_estimate
from posttrain.rl.losses.ipa import chunk_mean
from posttrain.rl.rollout import Rollout


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


def drawn_at(given: LossBatch, drifts: list[list[float]]) -> LossBatch:
    """The batch whose old policy was `drifts` times as likely as the one that drew each token."""
    gap_BT = torch.tensor(drifts, dtype=torch.float64).log()
    return replace(given, behaviour_logp_BT=given.old_logp_BT - gap_BT)


def gradient(name: str, given: LossBatch, **options: object) -> torch.Tensor:
    given = replace(given, logp_BT=given.logp_BT.detach().clone().requires_grad_())
    build(POLICY_LOSSES, Plugin(name=name, options=options))(given).value.backward()
    return given.logp_BT.grad


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
@pytest.mark.parametrize("gap", [-1000.0, 1000.0])
def test_runaway_log_probs_stay_finite(name: str, gap: float) -> None:
    given = batch([[1.0, 1.0]] * 3, [1.0, -1.0, 1.0], [2, 2, 2])
    given = replace(
        given,
        old_logp_BT=given.old_logp_BT + gap,
        behaviour_logp_BT=given.old_logp_BT - gap,
        external_B1=torch.tensor([[False], [False], [True]]),
    )
    found = POLICY_LOSSES[name](given)
    found.value.backward()
    assert found.value.isfinite()
    assert given.logp_BT.grad.isfinite().all()
    assert all(value.isfinite() for value in found.metrics.values())


@pytest.mark.parametrize("name", POLICY_LOSSES)
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum_norm"])
def test_on_policy_every_loss_has_the_gradient_of_clip(name: str, aggregation: str) -> None:
    given = batch([[1.0] * 3] * 2, [2.0, -1.0], [2, 3])
    expected = gradient("clip", given, aggregation=aggregation)
    found = gradient(name, given, aggregation=aggregation)
    if name == "gspo":
        assert torch.allclose(found, expected, rtol=1e-12)
    else:
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_the_penalty_is_added_to_each_token(name: str) -> None:
    given = batch([[1.1, 0.9]], [1.0], [2])
    fined = replace(given, penalty_BT=torch.tensor([[0.5, 1.5]], dtype=torch.float64))
    loss = build(POLICY_LOSSES, Plugin(name=name, options={"aggregation": "token_mean"}))
    assert loss(fined).value.item() - loss(given).value.item() == pytest.approx(1.0)


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


@pytest.mark.parametrize(
    ("advantage", "expected", "has_gradient"),
    [(1.0, -1.1, False), (-1.0, 1.2, True)],
)
def test_gspo_clips_the_ratio_of_the_sequence(
    advantage: float, expected: float, has_gradient: bool
) -> None:
    """Ratios 1.6 and 0.9: the geometric mean 1.2, although one token's is below 1."""
    given = batch([[1.6, 0.9, 7.0]], [advantage], [2])
    options = {"clip_low": 0.1, "clip_high": 0.1}
    found = build(POLICY_LOSSES, Plugin(name="gspo", options=options))(given)
    assert found.value.item() == pytest.approx(expected)
    assert found.metrics["ratio/sequence"].item() == pytest.approx(1.2)
    slope_T = gradient("gspo", given, **options)[0, :2]
    assert slope_T.tolist() == pytest.approx([0.6 if has_gradient else 0.0] * 2)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [0.5, 2.0, 5.0]),
        ({"clip_high": 1.5}, [0.5, 1.5, 1.5]),
        ({"clip_high": 1.5, "bounds": "epsilon"}, [0.5, 2.0, 2.5]),
        ({"clip_low": 0.2, "clip_high": 0.28, "bounds": "epsilon"}, [0.8, 1.28, 1.28]),
        ({"clip_low": 0.7, "clip_high": 3.0}, [0.7, 2.0, 3.0]),
    ],
)
def test_cispo_bounds_the_weight_and_keeps_every_gradient(
    options: dict[str, object], weights: list[float]
) -> None:
    given = batch([[0.5, 2.0, 9.0]], [1.5], [3])
    slope_T = gradient("cispo", given, **options)[0]
    assert slope_T.tolist() == pytest.approx([-1.5 * weight / 3 for weight in weights])


def test_decoupled_ppo_of_the_published_example() -> None:
    """Weight .9 / .6 = 1.5; ratio 1.5 is clipped to 1.2: the objective is 1.8."""
    given = drawn_at(batch([[1.5]], [1.0], [1]), [[0.9 / 0.6]])
    assert POLICY_LOSSES["decoupled_ppo"](given).value.item() == pytest.approx(-1.8)


@pytest.mark.parametrize(("over", "expected"), [("mask", -0.75), ("truncate", -3.25)])
def test_decoupled_ppo_over_the_cap(over: str, expected: float) -> None:
    """Weights 1.5 and 7 with the cap 5; the masked token still counts in the mean."""
    given = drawn_at(batch([[1.0, 1.0]], [1.0], [2]), [[1.5, 7.0]])
    found = build(POLICY_LOSSES, Plugin(name="decoupled_ppo", options={"over": over}))(given)
    assert found.value.item() == pytest.approx(expected)
    assert found.metrics["weight/over"].item() == 0.5


def test_decoupled_ppo_is_clip_when_the_old_policy_drew_the_tokens() -> None:
    given = batch([[1.5, 0.5, 1.1], [1.5, 0.5, 0.9]], [1.0, -1.0], [3, 2])
    assert POLICY_LOSSES["decoupled_ppo"](given).value == POLICY_LOSSES["clip"](given).value
    assert torch.equal(gradient("decoupled_ppo", given), gradient("clip", given))


def test_minpro_of_the_published_example() -> None:
    """Ratios 1.1, .5, 1.2, 1 become 1.1, .55, .6, .5; a word of the environment has no say."""
    given = batch([[1.1, 0.01, 0.5, 1.2, 1.0]], [-1.0], [5])
    mask_BT = torch.tensor([[True, False, True, True, True]])
    given = replace(given, mask_BT=mask_BT, totals=Totals(4, 1, 10, 4))
    slope_T = gradient("minpro", given, clip_low=0.9, clip_high=0.9)[0] * 4
    assert slope_T.tolist() == pytest.approx([1.1, 0, 0.55, 0.6, 0.5])


def test_minpro_varies_less_than_the_product_over_the_prefix() -> None:
    generator = torch.Generator().manual_seed(0)
    steps_BT = torch.randn(256, 32, generator=generator, dtype=torch.float64) * 0.2
    given = batch(steps_BT.exp().tolist(), [0.0] * 256, [32] * 256)
    metrics = POLICY_LOSSES["minpro"](given).metrics
    variance = metrics["prefix/square"] - metrics["prefix/mean"] ** 2
    product_BT = steps_BT.cumsum(dim=1).exp()
    assert variance < product_BT.var() / 10


def test_sequence_is_weighs_with_the_product_of_the_row() -> None:
    """Products .5 * 3 = 1.5 and 4 * 4 = 16, which is cut to 8 but keeps its gradient."""
    given = batch([[0.5, 3.0], [4.0, 4.0]], [1.0, -1.0], [2, 2])
    slope_BT = gradient("sequence_is", given) * 4
    assert slope_BT.tolist() == [pytest.approx([-1.5, -1.5]), pytest.approx([8.0, 8.0])]
    assert gradient("sequence_is", given, cap=20.0)[1].tolist() == pytest.approx([4.0, 4.0])
    assert POLICY_LOSSES["sequence_is"](given).metrics["weight/over"].item() == 0.5


def test_chunks_are_the_policys_runs_and_share_their_mean() -> None:
    """(1.2, .8) -> .9798 and (2, .5, 1) -> 1, in geometric means."""
    ratios_BT = torch.tensor([[1.2, 0.8, 99.0, 2.0, 0.5, 1.0]]).double()
    mask_BT = torch.tensor([[True, True, False, True, True, True]])
    found_T = chunk_mean(ratios_BT.log(), mask_BT).exp()[0]
    assert found_T[mask_BT[0]].tolist() == pytest.approx([0.9798] * 2 + [1.0] * 3, abs=1e-4)


@pytest.mark.parametrize(("advantage", "weights"), [(1.0, [1, 1, 0, 1]), (-1.0, [0.6, 0.6, 0, 1])])
def test_ipa_by_hand(advantage: float, weights: list[float]) -> None:
    """Chunks with ratios .6 and 1.3 ([1.3]_0^1 = 1); between them one drawn at 1.5 > H = 1.2."""
    given = batch([[0.9, 0.4, 5.0, 0.5, 5.0, 1.3]], [advantage], [6])
    mask_BT = torch.tensor([[True, True, False, True, False, True]])
    given = drawn_at(
        replace(given, mask_BT=mask_BT, totals=Totals(4, 1, 10, 4)),
        [[2.0, 0.5, 9.0, 1.5, 9.0, 1.1]],
    )
    slope_T = gradient("ipa", given)[0] * 4
    assert slope_T[mask_BT[0]].tolist() == pytest.approx([-advantage * w for w in weights])
    assert (slope_T[~mask_BT[0]] == 0).all()
    assert POLICY_LOSSES["ipa"](given).metrics["mask/share"].item() == 0.25


def likely(chances: list[float], old: list[float], advantages: list[float]) -> LossBatch:
    """One token a row; all but the last row are of another writer."""
    external_B1 = torch.arange(len(chances))[:, None] < len(chances) - 1
    given = batch([[1.0]] * len(chances), advantages, [1] * len(chances))
    return replace(
        given,
        logp_BT=torch.tensor(chances, dtype=torch.float64).log()[:, None].requires_grad_(),
        old_logp_BT=torch.tensor(old, dtype=torch.float64).log()[:, None],
        behaviour_logp_BT=torch.zeros(len(chances), 1, dtype=torch.float64),
        external_B1=external_B1,
    )


@pytest.mark.parametrize(
    ("options", "external"),
    [({}, -0.20444), ({"uniform": "inv_vocab", "vocabulary": 4}, -0.8 * 0.89443 * 0.5)],
)
def test_rl_plus_by_hand(options: dict[str, object], external: float) -> None:
    """pi .2, old .25, A .5: omega .625, r^m .45714, C .89443; with 1/V: omega .25, r^m .8.
    The policy's own token: pi .3, old .25, A -.5."""
    given = likely([0.2, 0.3], [0.25, 0.25], [0.5, -0.5])
    options = {**options, "aggregation": "token_mean"}
    found = build(POLICY_LOSSES, Plugin(name="rl_plus", options=options))(given)
    assert found.value.item() * 2 == pytest.approx(external + 0.6, abs=1e-5)
    # The gradient of r^m pi alone: the loss itself, as d r^m / d log pi = r^m; C has none.
    assert (gradient("rl_plus", given, **options) * 2)[0].item() == pytest.approx(
        external, abs=1e-5
    )
    assert found.metrics["external/share"].item() == 0.5


def test_rl_plus_clips_nothing_of_another_writer() -> None:
    given = likely([0.9, 0.9], [0.1, 0.1], [1.0, 1.0])
    assert (gradient("rl_plus", given) != 0).all()
    assert (gradient("rl_plus", given, clip_on_policy=True) != 0).tolist() == [[True], [False]]
    assert gradient("rl_plus", given, gamma=0.0)[0].item() * 2 == pytest.approx(-1.8 / 0.65)


def test_rl_plus_without_another_writer_is_clip() -> None:
    given = batch([[1.5, 0.5, 1.1], [1.5, 0.5, 0.9]], [1.0, -1.0], [3, 2])
    loss = build(POLICY_LOSSES, Plugin(name="rl_plus", options={"clip_on_policy": True}))
    assert loss(given).value == POLICY_LOSSES["clip"](given).value


@pytest.mark.parametrize("name", ["decoupled_ppo", "sequence_is", "ipa"])
def test_another_writers_unknown_chances_weigh_nothing_out(name: str) -> None:
    given = likely([0.2, 0.25], [0.2, 0.25], [1.0, 1.0])
    given = replace(given, behaviour_logp_BT=given.behaviour_logp_BT - 9.0)
    assert gradient(name, given, aggregation="token_sum_norm")[0].item() == pytest.approx(-1 / 20)


def test_the_learner_measures_what_no_engine_knows(tiny_policy: Path) -> None:
    """The old policy's chances of another writer's tokens; they are no weights of the hook's."""
    batches: list[LossBatch] = []
    facts: list[UpdateFacts] = []

    def loss(given: LossBatch) -> Loss:
        batches.append(given)
        return POLICY_LOSSES["rl_plus"](given)

    def hook(given: UpdateFacts) -> float:
        facts.append(given)
        return 1.0

    learner = Learner(RLConfig(max_new_tokens=4), tiny_policy, loss, [hook])
    prompt = Prompt(id="1", text="1+1=", answer="2", task="arithmetic", source="test")
    own = Rollout(prompt, "", (20, 21), (-5.0, -6.0), False)
    other = replace(own, behaviour_logps=(0.0, 0.0), source="external")
    learner.update([Lesson(r, 0, (1.0,), True) for r in (own, other)], 1e-9)
    rows = dict(zip(batches[0].external_B1[:, 0].tolist(), range(2), strict=True))
    old_BT = batches[0].old_logp_BT
    assert old_BT[rows[False]].tolist() == [-5.0, -6.0]
    assert torch.allclose(old_BT[rows[True]], batches[0].logp_BT[rows[True]], atol=1e-5)
    assert len(facts[0].log_weights_B) == 1
    assert facts[0].completions == 2
