"""The paired test by hand, and its error rates over simulated nights."""

from math import sqrt

import numpy as np
import pytest
from benchmarks.gate import PRIMARY, Suite, nights, of, share

from posttrain.gate.paired import Counts, bound, detectable, effective, paired, score, sign_flip

FLIPS = 200_000
TINY = {PRIMARY: Suite(600), "small": Suite(150), "clustered": Suite(100, 4)}


def test_sign_flips_are_mcnemar_on_single_items() -> None:
    """Eight won and two lost: 2 (1 + 10 + 45) / 1024."""
    d = np.array([1.0] * 8 + [-1.0] * 2 + [0.0] * 40)
    rng = np.random.default_rng(0)
    assert sign_flip(d, FLIPS, rng) == pytest.approx(112 / 1024, abs=0.003)
    assert sign_flip(np.zeros(50), 999, rng) == 1.0
    # Sums 2 and 1 with their signs: |±2 ±1| >= 3 in two of four ways.
    assert sign_flip(np.array([2.0, 1.0]), FLIPS, rng) == pytest.approx(0.5, abs=0.005)


def test_the_interval_by_hand() -> None:
    """Nothing differs: z² / (n + z²), as with a share of 0; at 0 the score is McNemar's."""
    z = 1.959964
    assert bound(Counts(150, 0, 0), z) == pytest.approx(-(z**2) / (150 + z**2), abs=1e-6)
    assert bound(Counts(150, 0, 0), -z) == pytest.approx(z**2 / (150 + z**2), abs=1e-6)
    assert score(Counts(100, 12, 2), 0.0) == pytest.approx(10 / sqrt(14))
    for z in (1.959964, -1.959964):
        counts = Counts(100, 12, 2)
        assert score(counts, bound(counts, z)) == pytest.approx(z, abs=1e-6)


def test_the_parts_of_a_paired_study() -> None:
    d = np.repeat([1.0, -1.0, 0.0], [12, 2, 86])
    rng = np.random.default_rng(0)
    found = paired(d, np.arange(100), rng, flips=9999, level=0.05, margin=0.02)
    assert found.value == pytest.approx(0.1)
    assert found.p == pytest.approx(2 * (1 + 14 + 91) / 2**14, abs=0.003)
    assert found.low == pytest.approx(bound(Counts(99, 99 * 0.12, 99 * 0.02), 1.959964), abs=1e-6)
    assert found.p_margin < 0.025
    with pytest.raises(ValueError, match="no items"):
        paired(d[:0], np.arange(0), rng, flips=100, level=0.05, margin=0.02)


def test_clusters_that_go_as_one_are_worth_one_item() -> None:
    alone = effective(np.repeat([1.0, -1.0, 0.0], [6, 2, 42]), np.arange(50))
    d = np.repeat(np.repeat([1.0, -1.0, 0.0], [6, 2, 42]), 4)
    together = effective(d, np.arange(200) // 4)
    assert together == pytest.approx(alone)
    assert alone.n == pytest.approx(49)


def test_the_detectable_loss_by_hand() -> None:
    """x = k sqrt(V + x) + 1 with k = 1.96 + 0.84: 9.746 of 150 where nothing differs yet."""
    assert detectable(np.zeros(150), np.zeros(150), 0.05) * 150 == pytest.approx(9.746, abs=0.001)
    d = np.repeat([1.0, -1.0, 0.0], [30, 30, 940])
    x = detectable(d, d, 0.05) * 1000
    assert x == pytest.approx(2.801585 * sqrt(60 + x) + 1, abs=1e-3)


def test_no_change_is_rarely_called_one() -> None:
    """Of 300 nights without a change at most 5% fail or promote, as far as 300 can tell."""
    found = nights(TINY, {}, 300, seed=1)
    wrong = of(found, "fail") + of(found, "pass")
    assert share(wrong, 300)[1] <= 0.05
    assert wrong > 0, "a gate that never says anything errs never"


def test_a_loss_as_large_as_the_gate_says_it_sees_fails() -> None:
    """Four times in five, as far as 100 nights can tell."""
    quiet = nights(TINY, {}, 20, seed=2)
    for name in TINY:
        loss = float(np.median([night.suites[name].detectable for night in quiet]))
        found = nights(TINY, {name: loss}, 100, seed=3)
        assert share(of(found, "fail"), 100)[2] >= 0.8
        assert of(found, "fail") >= 72


def test_a_loss_of_the_margin_is_rarely_taken_for_none() -> None:
    suites = {PRIMARY: Suite(600)}
    found = nights(suites, {PRIMARY: 0.02}, 300, 4, "non_inferior")
    assert share(of(found, "pass"), 300)[1] <= 0.025
    easy = nights(suites, {}, 60, 5, "non_inferior", margin=0.06)
    assert of(easy, "pass") >= 50
