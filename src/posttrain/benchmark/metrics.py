"""Metrics of a suite, each with a 95% interval over items, made of what its rows measure.

Shapes: I items, M measures, R resamples. A row's `measures` are counts or shares; those of the
samples of an item are averaged, and a measure that a row does not name counts 0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from posttrain.records import Sample, Score
from posttrain.statistics import Array, Interval, bootstrap_means, clustered_share, generator

RESAMPLES = 1000
"""Resamples of a pooled metric's interval (assumed)."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Table = Mapping[str, Array]
Formula = Callable[[Table], Array]


class Metric(NamedTuple):
    """A number of a suite: `estimate` makes it of the measures of I items, None where it is not
    defined on them, and says of how many items."""

    name: str
    estimate: Callable[[Table], tuple[Interval, int] | None]


def share(name: str, measure: str, among: str | None = None) -> Metric:
    """Mean of a measure in [0, 1] over the items that `among` counts, with Wilson's interval."""

    def estimate(table: Table) -> tuple[Interval, int] | None:
        values_I = table.get(measure, np.zeros(len(next(iter(table.values())))))
        if among is not None:
            inside_I = table.get(among, np.zeros_like(values_I)) > 0
            values_I = values_I[inside_I]
        return (clustered_share(values_I), len(values_I)) if len(values_I) else None

    return Metric(name, estimate)


def pooled(name: str, formula: Formula) -> Metric:
    """A formula of the mean measures, NaN where it is not defined; bootstrapped over items.

    Sums and means give the same where the formula has no scale, as ratios of counts have none.
    """

    def estimate(table: Table) -> tuple[Interval, int] | None:
        values_IM = np.stack([*table.values()], axis=1)
        value = float(formula(_named(table, values_IM.mean(0, keepdims=True)))[0])
        if not np.isfinite(value):
            return None
        means_RM = bootstrap_means(values_IM, RESAMPLES, generator(0, f"metrics/{name}"))
        found_R = formula(_named(table, means_RM))
        found_R = found_R[np.isfinite(found_R)]
        if len(found_R) < 2:
            return Interval(value, value, value, 0.0), len(values_IM)
        low, high = np.quantile(found_R, [0.025, 0.975])
        spread = float(found_R.std(ddof=1))
        return Interval(value, min(value, float(low)), max(value, float(high)), spread), len(
            values_IM
        )

    return Metric(name, estimate)


class _Named(dict[str, Array]):
    """Measures by name; one that nobody measured is 0."""

    def __missing__(self, _name: str) -> Array:
        return np.zeros_like(next(iter(self.values())))


def _named(names: Table, values_RM: Array) -> Table:
    return _Named(zip(names, values_RM.T, strict=True))


def mean_of(measure: str) -> Formula:
    """The mean of a measure of any range."""
    return lambda table: table[measure]


def over(above: str, below: str) -> Formula:
    """A ratio of two counts; NaN where there is nothing to count."""
    return lambda table: divided(table[above], table[below])


def divided(above: Array, below: Array, otherwise: float = np.nan) -> Array:
    """above / below, and `otherwise` where below is 0."""
    safe = np.where(below > 0, below, 1.0)
    return np.where(below > 0, above / safe, otherwise)


def harmonic(ours: Array, theirs: Array) -> Array:
    """Harmonic mean of two shares: 0 where both are 0, NaN where one is."""
    return np.asarray(divided(2 * ours * theirs, ours + theirs, 0.0)) + 0 * (ours + theirs)


def tally(rows: Sequence[Sample]) -> dict[str, Array]:
    """Measure -> its mean over the samples of each item [I]."""
    items: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        items.setdefault(row.item_id, []).append(row.measures or {})
    names = sorted({name for each in items.values() for found in each for name in found})
    return {
        name: np.array(
            [sum(found.get(name, 0.0) for found in each) / len(each) for each in items.values()]
        )
        for name in names
    }


def scores_of(
    rows: Sequence[Sample], suite: str, metrics: Sequence[Metric], category: str = ""
) -> list[Score]:
    """The metrics that are defined on these rows; of one category where it is named."""
    table = tally(rows)
    if not table:
        return []
    ending = f"/category_{category}" if category else ""
    found = [(metric.name, metric.estimate(table)) for metric in metrics]
    return [
        Score(
            suite=suite,
            metric=f"{name}{ending}",
            value=estimate[0].value,
            n=estimate[1],
            stderr=estimate[0].stderr,
            low=estimate[0].low,
            high=estimate[0].high,
        )
        for name, estimate in found
        if estimate is not None
    ]
