"""Estimators against hand-worked numbers, brute force and seeded simulations."""

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from math import comb, isclose, sqrt

import numpy as np
import pytest

from posttrain.statistics import (
    bootstrap_intervals,
    bootstrap_means,
    clustered_share,
    generator,
    holm,
    judge_at_k,
    majority_at_k,
    minimum_detectable,
    pair_accuracy,
    paired_difference,
    pass_at_k,
    powers_of_two,
    wilson,
)


def test_pass_at_k_by_hand() -> None:
    """n=5, c=2: pass@1 = 2/5; pass@2 = 1 - C(3,2)/C(5,2) = 0.7; pass@4 = 1 (only 3 are wrong)."""
    correct = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=float)
    found = pass_at_k(correct, [1, 2, 4])
    np.testing.assert_allclose(found, [[0.4, 0.7, 1.0], [0, 0, 0], [1, 1, 1]])


def test_pass_at_k_of_large_n_stays_exact() -> None:
    correct = np.zeros((1, 200))
    correct[0, :3] = 1
    assert isclose(pass_at_k(correct, [100])[0, 0], 1 - comb(197, 100) / comb(200, 100))


@pytest.mark.parametrize("ks", [[], [0], [6]])
def test_k_outside_the_samples_is_refused(ks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"k must be in 1\.\.5"):
        pass_at_k(np.ones((2, 5)), ks)


def test_powers_of_two_close_with_the_largest() -> None:
    assert powers_of_two(1) == [1]
    assert powers_of_two(8) == [1, 2, 4, 8]
    assert powers_of_two(12) == [1, 2, 4, 8, 12]


def test_judge_at_k_by_hand() -> None:
    """Scores 3 > 2 > 1, only the middle one correct: it leads 1 of the 3 pairs (with the worst)."""
    found = judge_at_k(np.array([[0.0, 1.0, 0.0]]), np.array([[3.0, 2.0, 1.0]]), [1, 2, 3])
    np.testing.assert_allclose(found, [[1 / 3, 1 / 3, 0.0]])


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_judge_at_k_equals_enumeration(levels: int) -> None:
    """Few levels of score make many ties, which are averaged over."""
    rng = np.random.default_rng(levels)
    correct = rng.integers(0, 2, (6, 7)).astype(float)
    score = rng.integers(0, levels, (6, 7)).astype(float)
    ks = [1, 2, 3, 5, 7]
    expected = np.empty((6, len(ks)))
    for i, (column, k) in itertools.product(range(6), enumerate(ks)):
        values = []
        for subset in itertools.combinations(range(7), k):
            best = max(score[i, j] for j in subset)
            values.append(np.mean([correct[i, j] for j in subset if score[i, j] == best]))
        expected[i, column] = np.mean(values)
    np.testing.assert_allclose(judge_at_k(correct, score, ks), expected, atol=1e-12)


def majority_by_enumeration(correct: list[float], said: list[str | None], k: int) -> float:
    values = []
    for subset in itertools.combinations(range(len(said)), k):
        votes = Counter(said[j] for j in subset if said[j] is not None)
        if not votes:
            values.append(0.0)
            continue
        most = max(votes.values())
        first = next(j for j in subset if said[j] is not None and votes[said[j]] == most)
        values.append(correct[first])
    return float(np.mean(values))


def test_majority_at_k_equals_enumeration() -> None:
    rng = np.random.default_rng(0)
    said = [[rng.choice(["a", "b", "c", None]) for _ in range(7)] for _ in range(8)]
    said.append([None] * 7)
    right = [[float(text == "a") for text in row] for row in said]
    ks = [1, 2, 3, 4, 7]
    expected = [
        [majority_by_enumeration(r, s, k) for k in ks] for r, s in zip(right, said, strict=True)
    ]
    found = majority_at_k(np.array(right), said, ks, generator(0, "majority"))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_majority_convention_by_hand() -> None:
    """`b, a, a, b` ties 2:2 and goes to `b`, seen first; None neither votes nor leads."""
    said: list[list[str | None]] = [["b", "a", "a", "b"], [None, None, None, "a"]]
    right = np.array([[0.0, 1, 1, 0], [0, 0, 0, 1]])
    found = majority_at_k(right, said, [4], generator(0, "majority"))
    np.testing.assert_array_equal(found, [[0.0], [1.0]])


def test_majority_beyond_enumeration_is_close_and_seeded() -> None:
    """C(16, 8) = 12870 subsets are drawn from; the mean is that of the enumeration to 3 points."""
    rng = np.random.default_rng(1)
    said = [[str(rng.choice(["a", "b", "c"], p=[0.4, 0.35, 0.25])) for _ in range(16)]]
    right = np.array([[float(text == "a") for text in said[0]]])
    found = majority_at_k(right, said, [8], generator(3, "majority"))
    again = majority_at_k(right, said, [8], generator(3, "majority"))
    assert found == again
    assert abs(found[0, 0] - majority_by_enumeration(list(right[0]), said[0], 8)) < 0.03


def test_pair_accuracy_by_hand() -> None:
    """Item 1: correct 2.0 beats wrong 1.0 and ties wrong 2.0 -> 1.5 of 2; item 2 has no pair."""
    correct = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    score = np.array([[2.0, 1.0, 2.0], [0.0, 5.0, 9.0]])
    assert pair_accuracy(correct, score) == 0.75
    assert pair_accuracy(correct[1:], score[1:]) == 0.5


def test_wilson_by_hand() -> None:
    """8 of 10: (0.8 + z²/20 ± z sqrt(0.016 + z²/400)) / (1 + z²/10) = [0.4902, 0.9433]."""
    low, high = wilson(0.8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert wilson(0.0, 0) == (0.0, 1.0)
    assert wilson(0.0, 51)[0] == 0.0
    assert wilson(1.0, 51)[1] == 1.0


def test_clustered_share_by_hand() -> None:
    """Item shares 0, 1, 1, 0.5: mean 0.625, variance (ddof 1) 0.229167, stderr 0.239357."""
    found = clustered_share(np.array([0.0, 1.0, 1.0, 0.5]))
    assert found.value == 0.625
    assert isclose(found.stderr, sqrt(0.22916666666666666 / 4))
    assert 0 <= found.low < 0.625 < found.high <= 1


def test_clustered_share_is_wilson_for_one_sample_an_item() -> None:
    """With single samples, the effective size is n - 1."""
    found = clustered_share(np.array([1.0] * 30 + [0.0] * 70))
    assert (found.low, found.high) == pytest.approx(wilson(0.3, 99))


def test_unanimous_items_keep_an_interval() -> None:
    found = clustered_share(np.zeros(100))
    assert found[0] == found.low == 0.0
    assert 0.03 < found.high < 0.04
    assert clustered_share(np.ones(1)).low < 0.3


def test_no_items_are_refused() -> None:
    with pytest.raises(ValueError, match="no items"):
        clustered_share(np.array([]))


def test_bootstrap_covers_at_its_level() -> None:
    """300 studies of 60 items: the 95% interval of the mean holds the truth in 91 to 98%."""
    rng = np.random.default_rng(5)
    covered = 0
    for study in range(300):
        values = rng.beta(2, 3, (60, 1))
        [interval] = bootstrap_intervals(values, 400, generator(study, "coverage"))
        covered += interval.low <= 0.4 <= interval.high
    assert 0.91 <= covered / 300 <= 0.98


def test_bootstrap_keeps_columns_of_an_item_together() -> None:
    values = np.random.default_rng(0).random((50, 1))
    means = bootstrap_means(np.hstack([values, 1 - values]), 200, generator(0, "rows"))
    np.testing.assert_allclose(means.sum(1), 1.0)
    assert means[:, 0].std() > 0.01


def test_paired_p_values_are_uniform_without_a_difference() -> None:
    """The test rejects at 5% in about one study of twenty."""
    rng = np.random.default_rng(9)
    rejected = 0
    for study in range(400):
        ours, theirs = rng.random((2, 80))
        rejected += paired_difference(ours, theirs, 400, generator(study, "null")).p < 0.05
    assert 0.02 <= rejected / 400 <= 0.09


def test_paired_difference_by_hand() -> None:
    """Every item better by the same amount: interval of no width, the least p that 99 can give."""
    found = paired_difference(np.full(40, 0.75), np.full(40, 0.5), 99, generator(0, "same"))
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)
    assert found.p == 0.01
    same = paired_difference(np.ones(40), np.ones(40), 99, generator(0, "same"))
    assert (same.value, same.p) == (0.0, 1.0)
    assert same.detectable == pytest.approx(2.801585 / 40, abs=1e-6)


def test_pairing_needs_the_same_items() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_difference(np.ones(3), np.ones(2), 10, generator(0, "x"))


def test_detectable_effect_by_hand() -> None:
    """(1.959964 + 0.841621) x 0.01."""
    assert minimum_detectable(0.01) == pytest.approx(0.02801585, abs=1e-8)


def test_holm_by_hand() -> None:
    """Holm's own steps: 0.01 x 4, 0.02 x 3 = 0.06, 0.03 x 2 = 0.06, 0.5 x 1."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_4096_samples_take_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    correct = rng.integers(0, 2, (512, 8)).astype(float)
    said = [[str(c) for c in row] for row in correct]
    started = time.perf_counter()
    ks = powers_of_two(8)
    values = np.hstack(
        [
            pass_at_k(correct, ks),
            judge_at_k(correct, rng.random((512, 8)), ks),
            majority_at_k(correct, said, ks, generator(0, "majority")),
        ]
    )
    bootstrap_intervals(values, 2000, generator(0, "bootstrap"))
    assert time.perf_counter() - started < 1.5


@pytest.mark.parametrize("processor", ["Nehalem", "Haswell"])
def test_intervals_are_the_same_bits_on_every_processor(processor: str) -> None:
    """OpenBLAS takes another kernel, and rounds otherwise, for each kind of processor."""
    script = (
        "import numpy as np; from posttrain.statistics import bootstrap_intervals, judge_at_k\n"
        "rng = np.random.default_rng(0)\n"
        "found = bootstrap_intervals(rng.random((601, 5)), 200, rng)\n"
        "print([tuple(map(float.hex, interval)) for interval in found])\n"
        "score = rng.integers(0, 3, (97, 8)).astype(float)\n"
        "print(judge_at_k(rng.random((97, 8)), score, [1, 2, 4, 8]).tobytes().hex())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=True
        ).stdout
        for environment in ({**os.environ, "OPENBLAS_CORETYPE": processor}, dict(os.environ))
    ]
    assert said[0] == said[1]
