"""Two policies on the same items: an exact test, an interval, and what could have been seen.

Shapes: I items, C clusters. `d` is the challenger's score minus the champion's, in [-1, 1]. Items
that share a prompt stand or fall together, so they make one cluster, and `D` is its sum of `d`.
"""

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posttrain.statistics import Array

NORMAL = NormalDist()
POWER = 0.8
ROUNDING = 1e-9


class Paired(NamedTuple):
    """A paired difference with its 95% interval.

    `p` is two-sided, for no difference. `p_margin` is one-sided, for a loss of the margin or more,
    as if half an item more were lost: without that correction for whole numbers it errs a little
    too often. `detectable` is the smallest loss that is found with probability POWER.
    """

    value: float
    low: float
    high: float
    p: float
    p_margin: float
    detectable: float


class Counts(NamedTuple):
    """A paired study as if of `n` independent yes-or-no items: `won` of them by the challenger
    alone, `lost` by the champion alone (not whole numbers: scores and clusters are not)."""

    n: float
    won: float
    lost: float


def paired(
    d_I: Array,
    cluster_I: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    flips: int,
    level: float,
    margin: float,
) -> Paired:
    """Compare on items `d_I` of clusters `cluster_I`, numbered from 0.

    `level` is that of the two-sided test which `detectable` speaks of. Raises ValueError on no
    items.
    """
    if len(d_I) == 0:
        raise ValueError("no items")
    sum_C = np.asarray(np.bincount(cluster_I, d_I), dtype=np.float64)
    counts = effective(d_I, cluster_I)
    z = NORMAL.inv_cdf(0.975)
    return Paired(
        value=float(d_I.mean()),
        low=bound(counts, z),
        high=bound(counts, -z),
        p=sign_flip(sum_C, flips, rng),
        p_margin=1 - NORMAL.cdf(score(counts._replace(lost=counts.lost + 0.5), -margin)),
        detectable=detectable(d_I, sum_C, level),
    )


def sign_flip(sum_C: Array, flips: int, rng: np.random.Generator) -> float:
    """Two-sided p-value of no change: were the two policies alike, each D could as well be -D.

    Exact at any size, with `flips` random draws and one added above and below. For single
    yes-or-no items it is McNemar's exact test. Equal sizes are drawn together: of k clusters of
    size v, Binomial(k, 1/2) keep their sign.
    """
    sizes, counts = np.unique(np.abs(sum_C).round(9), return_counts=True)
    drawn = np.zeros(flips)
    for size, count in zip(sizes, counts, strict=True):
        if size > 0:
            drawn += size * (2.0 * rng.binomial(count, 0.5, flips) - count)
    extreme = np.abs(drawn) >= abs(float(sum_C.sum())) - ROUNDING
    return (1 + int(extreme.sum())) / (1 + flips)


def effective(d_I: Array, cluster_I: NDArray[np.int64]) -> Counts:
    """The yes-or-no study that is as precise: n = (won + lost - value²) / stderr², clustered.

    The way of Korn and Graubard (1998) with one share, for a difference of two. Where no cluster
    differs from another, each counts once.
    """
    items, clusters = len(d_I), int(cluster_I.max()) + 1
    value = float(d_I.mean())
    won, lost = float(np.maximum(d_I, 0).mean()), float(np.maximum(-d_I, 0).mean())
    off_C = np.bincount(cluster_I, d_I - value)
    variance = float((off_C**2).sum()) / items**2 * clusters / max(1, clusters - 1)
    n = (won + lost - value**2) / variance if variance > ROUNDING**2 else clusters
    return Counts(n, n * won, n * lost)


def score(counts: Counts, difference: float) -> float:
    """Tango's score statistic (1998) of a true `difference`, about standard normal.

    Its variance is that of the likeliest shares which have the difference, so it holds where few
    items differ or none, as that of the observed shares does not.
    """
    n, won, lost = counts
    b = (2 * n - won + lost) * difference - won - lost
    share = (sqrt(max(0.0, b * b + 8 * n * lost * difference * (1 - difference))) - b) / (4 * n)
    variance = n * (2 * share + difference * (1 - difference))
    distance = won - lost - n * difference
    return distance / sqrt(variance) if variance > ROUNDING else 0.0


def bound(counts: Counts, z: float) -> float:
    """The difference whose score statistic is `z`, by bisection: it falls as differences grow."""
    value = (counts.won - counts.lost) / counts.n
    low, high = (-1.0, value) if z > 0 else (value, 1.0)
    for _ in range(50):
        middle = (low + high) / 2
        if score(counts, middle) > z:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def detectable(d_I: Array, sum_C: Array, level: float) -> float:
    """The smallest loss that `sign_flip` finds at `level` with probability POWER, or better.

    A loss of x items more would add to what differs already: with V = sum D², and g = V / sum |d|
    the size of a step, x = (z_level + z_power) sqrt(V + g x) + g; the last g is for the gaps
    between values that the test can take. While nothing differs a step is a whole cluster.
    """
    items, clusters = len(d_I), len(sum_C)
    spread, differing = float((sum_C**2).sum()), float(np.abs(d_I).sum())
    step = spread / differing if differing > ROUNDING else items / clusters
    k = NORMAL.inv_cdf(1 - level / 2) + NORMAL.inv_cdf(POWER)
    half = step * (1 + k * k / 2)
    return min(1.0, (half + sqrt(half**2 + k * k * spread - step**2)) / items)
