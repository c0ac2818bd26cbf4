"""Estimators and intervals over items: pass@k, majority@k, judge@k, bootstrap, Holm.

Shapes: I items, N samples of an item, K values of k, M measures, R resamples. Items are the
unit: samples of one item are not independent, so every interval is over items.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXACT_SUBSETS = 2048
"""majority@k goes over all k-subsets up to this many, and over a seeded draw beyond."""

CHUNK_CELLS = 2**22
"""Cells of the largest intermediate array (32 MiB of float64)."""

Z = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """An estimate with its standard error and 95% interval."""

    value: float
    low: float
    high: float
    stderr: float


class Difference(NamedTuple):
    """A paired difference: its interval, two-sided p-value, and the smallest difference that
    a study of this size finds in four of five tries (5% level)."""

    value: float
    low: float
    high: float
    stderr: float
    p: float
    detectable: float


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A stream of random numbers of its own for each purpose."""
    return np.random.default_rng([seed, *purpose.encode()])


def wilson(share: float, n: float, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval of a share in [0, 1] out of `n` trials; [0, 1] when n is 0."""
    if n <= 0:
        return 0.0, 1.0
    centre = share + z * z / (2 * n)
    spread = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
    return (low if share > 0 else 0.0), (high if share < 1 else 1.0)


def clustered_share(share_I: Array) -> Interval:
    """Mean of per-item shares in [0, 1], with the standard error clustered on items.

    The interval is Wilson's at the effective size p(1-p)/stderr² (Korn and Graubard 1998), which
    stays inside [0, 1] and has width even when every item agrees. Raises ValueError on no items.
    """
    n = len(share_I)
    if n == 0:
        raise ValueError("no items")
    mean = float(share_I.mean())
    if n == 1:
        return Interval(mean, *wilson(mean, 1), 0.5)
    stderr = float(share_I.std(ddof=1)) / sqrt(n)
    effective = mean * (1 - mean) / stderr**2 if stderr > 0 else n
    return Interval(mean, *wilson(mean, effective), stderr)


def product(left_AB: Array, right_BC: Array) -> Array:
    """The matrix product [A, C], the same bits on every processor: BLAS promises no such thing."""
    return np.asarray(np.einsum("ab,cb->ac", left_AB, np.ascontiguousarray(right_BC.T)))


def bootstrap_means(values_IM: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Means [R, M] of `resamples` draws of I items with replacement; a row stays together."""
    n = len(values_IM)
    means = np.empty((resamples, values_IM.shape[1]))
    step = max(1, CHUNK_CELLS // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        weight_RI = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        means[start : start + size] = product(weight_RI.astype(float), values_IM) / n
    return means


def bootstrap_intervals(
    values_IM: Array, resamples: int, rng: np.random.Generator
) -> list[Interval]:
    """The mean of each column with its 95% percentile interval over items (Efron 1979)."""
    return _percentile(values_IM, bootstrap_means(values_IM, resamples, rng))


def _percentile(values_IM: Array, means_RM: Array) -> list[Interval]:
    low_M, high_M = np.quantile(means_RM, [0.025, 0.975], axis=0)
    columns = zip(values_IM.mean(0), low_M, high_M, means_RM.std(0, ddof=1), strict=True)
    return [Interval(*map(float, column)) for column in columns]


def paired_difference(
    ours_I: Array, theirs_I: Array, resamples: int, rng: np.random.Generator
) -> Difference:
    """Paired bootstrap of mean(ours - theirs) over items.

    The p-value shifts the resampled means to a true difference of 0 and counts those at least
    as far out, with one added above and below (never 0). `detectable` reckons with at least one
    item that differs, lest a study without any seem to see everything. Raises ValueError on no
    items.
    """
    if len(ours_I) == 0 or len(ours_I) != len(theirs_I):
        raise ValueError(f"{len(ours_I)} items cannot be paired with {len(theirs_I)}")
    values_I1 = (ours_I - theirs_I)[:, None]
    means_R1 = bootstrap_means(values_I1, resamples, rng)
    [interval] = _percentile(values_I1, means_R1)
    rounding = 1e-12
    extreme = np.abs(means_R1 - interval.value) >= abs(interval.value) - rounding
    p = (1 + int(extreme.sum())) / (1 + resamples)
    one_item = 1 / len(ours_I)
    return Difference(*interval, p, minimum_detectable(max(interval.stderr, one_item)))


def minimum_detectable(stderr: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that a two-sided test at `alpha` finds with probability `power`."""
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) * stderr


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that hold the family-wise error (Holm 1979), in the given order."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to `largest`, which closes the list even if it is no power of two."""
    ks = [2**i for i in range(largest.bit_length()) if 2**i <= largest]
    return ks if ks[-1] == largest else [*ks, largest]


def pass_at_k(correct_IN: Array, ks: Sequence[int]) -> Array:
    """Unbiased pass@k [I, K]: 1 - C(n-c, k)/C(n, k), with c of n samples correct.

    A sample counts as correct above one half. arXiv:2107.03374.
    """
    n = correct_IN.shape[1]
    _check_ks(ks, n)
    count_I = (correct_IN > 0.5).sum(1)
    table = [[1 - comb(n - c, k) / comb(n, k) for k in ks] for c in range(n + 1)]
    found_IK: Array = np.array(table)[count_I]
    return found_IK


def judge_at_k(correct_IN: Array, score_IN: Array, ks: Sequence[int]) -> Array:
    """Expected correctness [I, K] of the sample a judge ranks first in a random k-subset.

    Exact: the sample of rank r (0 is best) leads C(n-1-r, k-1) of the C(n, k) subsets. Samples
    of equal score share their ranks, so their correctness is averaged.
    """
    n = correct_IN.shape[1]
    _check_ks(ks, n)
    order_IN = np.argsort(-score_IN, axis=1, kind="stable")
    score_IN = np.take_along_axis(score_IN, order_IN, 1)
    correct_IN = np.take_along_axis(correct_IN, order_IN, 1)
    new_IN = np.ones(score_IN.shape, dtype=bool)
    new_IN[:, 1:] = score_IN[:, 1:] != score_IN[:, :-1]
    tie = np.cumsum(new_IN.ravel()) - 1
    shared = np.bincount(tie, correct_IN.ravel()) / np.bincount(tie)
    lead_NK = np.array([[comb(n - 1 - r, k - 1) / comb(n, k) for k in ks] for r in range(n)])
    return product(shared[tie].reshape(score_IN.shape), lead_NK)


def majority_at_k(
    correct_IN: Array,
    prediction_IN: Sequence[Sequence[str | None]],
    ks: Sequence[int],
    rng: np.random.Generator,
) -> Array:
    """Expected correctness [I, K] of the most frequent prediction in a k-subset.

    Of predictions with equal votes the first seen wins, and its first sample says whether it is
    correct; None does not vote, and a subset without votes is wrong. Exact over all subsets up to
    EXACT_SUBSETS of them, else over that many drawn ones.
    """
    n = correct_IN.shape[1]
    _check_ks(ks, n)
    same_INN = np.stack([_agreement(row) for row in prediction_IN])
    found = np.empty((len(correct_IN), len(ks)))
    for column, k in enumerate(ks):
        member_SN = _subsets(n, k, rng)
        step = max(1, CHUNK_CELLS // member_SN.size)
        for start in range(0, len(correct_IN), step):
            part = slice(start, start + step)
            votes_ISN = (member_SN @ same_INN[part]) * member_SN
            winner_IS = votes_ISN.argmax(2)
            voted_IS = votes_ISN.max(2) > 0
            right_IS = np.take_along_axis(correct_IN[part], winner_IS, 1)
            found[part, column] = (right_IS * voted_IS).mean(1)
    return found


def weighted_majority_at_k(
    correct_IN: Array,
    prediction_IN: Sequence[Sequence[str | None]],
    score_IN: Array,
    ks: Sequence[int],
    rng: np.random.Generator,
    weights: Literal["softmax", "sum"] = "softmax",
) -> Array:
    """Expected correctness [I, K] of the prediction with the most weight in a k-subset.

    A vote weighs exp(score) over the subset's sum of these (`softmax`), or the score itself
    (`sum`, which may be negative). A sample without a prediction or with a score that is not
    finite does not vote, and a subset without votes is wrong. Ties and the choice of subsets are
    those of `majority_at_k`.
    """
    n = correct_IN.shape[1]
    _check_ks(ks, n)
    same_INN = np.stack([_agreement(row) for row in prediction_IN]).astype(np.float64)
    says_IN = np.einsum("inn->in", same_INN) > 0
    score_IN = np.where(says_IN & np.isfinite(score_IN), score_IN, -np.inf)
    found = np.empty((len(correct_IN), len(ks)))
    for column, k in enumerate(ks):
        member_SN = _subsets(n, k, rng) > 0
        step = max(1, CHUNK_CELLS // member_SN.size)
        for start in range(0, len(correct_IN), step):
            part = slice(start, start + step)
            score_ISN = np.where(member_SN, score_IN[part, None], -np.inf)
            # Equal sums of floats differ in their last digits, and would not tie.
            votes_ISN = (_weights(score_ISN, weights) @ same_INN[part]).round(9)
            winner_IS = np.where(np.isfinite(score_ISN), votes_ISN, -np.inf).argmax(2)
            voted_IS = np.isfinite(score_ISN).any(2)
            right_IS = np.take_along_axis(correct_IN[part], winner_IS, 1)
            found[part, column] = (right_IS * voted_IS).mean(1)
    return found


def _weights(score_ISN: Array, weights: Literal["softmax", "sum"]) -> Array:
    """What each vote weighs, 0 where the score is -inf; scaled by a positive number a subset so
    that the largest is 1, which changes no order of votes."""
    votes_ISN = np.isfinite(score_ISN)
    if weights == "softmax":
        best_IS1 = np.max(score_ISN, axis=2, keepdims=True, initial=-1e300)
        return np.asarray(np.where(votes_ISN, np.exp(score_ISN - best_IS1), 0.0))
    plain_ISN = np.where(votes_ISN, score_ISN, 0.0)
    return np.asarray(plain_ISN / np.maximum(np.abs(plain_ISN).max(2, keepdims=True), 1e-300))


def pair_accuracy(correct_IN: Array, score_IN: Array) -> float:
    """Share of (correct, wrong) pairs of one item that a judge's scores order right; a tie counts
    one half, and 0.5 stands for no pairs at all. A pair with a NaN score does not count."""
    right_IN, known_IN = correct_IN > 0.5, ~np.isnan(score_IN)
    pair_INN = (right_IN & known_IN)[:, :, None] & (~right_IN & known_IN)[:, None, :]
    gap_INN = score_IN[:, :, None] - score_IN[:, None, :]
    won = (pair_INN & (gap_INN > 0)).sum() + 0.5 * (pair_INN & (gap_INN == 0)).sum()
    return float(won / pair_INN.sum()) if pair_INN.any() else 0.5


def _agreement(predictions: Sequence[str | None]) -> NDArray[np.float32]:
    """[N, N]: 1 where two samples predict the same; rows and columns of None are 0."""
    codes = {text: code for code, text in enumerate(dict.fromkeys(predictions)) if text is not None}
    code_N = np.array([codes[text] if text is not None else -1 for text in predictions])
    same_NN = (code_N[:, None] == code_N[None, :]) & (code_N >= 0)[:, None]
    return np.asarray(same_NN, dtype=np.float32)


def _subsets(n: int, k: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Membership [S, N] of all k-subsets of n samples, or of EXACT_SUBSETS drawn ones."""
    if comb(n, k) <= EXACT_SUBSETS:
        chosen_SK = np.array(list(combinations(range(n), k)))
    else:
        chosen_SK = np.argsort(rng.random((EXACT_SUBSETS, n)), axis=1)[:, :k]
    member_SN = np.zeros((len(chosen_SK), n), dtype=np.float32)
    np.put_along_axis(member_SN, chosen_SK, 1.0, axis=1)
    return member_SN


def _check_ks(ks: Sequence[int], n: int) -> None:
    if not ks or min(ks) < 1 or max(ks) > n:
        raise ValueError(f"k must be in 1..{n}, the number of samples; got {list(ks)}")
