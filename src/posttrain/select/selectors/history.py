"""Samples for one-shot RL by the accuracies that they had over an earlier training."""

import random
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import fmean, pstdev

from pydantic import PositiveInt

from posttrain.errors import DataError, Fault
from posttrain.records import Record
from posttrain.select.measures import Measures


def historical_variance(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    n: PositiveInt = 1,
    rank: PositiveInt = 1,
) -> Iterable[Record]:
    """The `n` rows from `rank` on whose accuracy varied most (One-Shot-RLVR, arXiv:2504.20571).

    Rank 1 is the row with the largest population standard deviation over its history; ties go by
    the order of the record of histories. Rows without a history take no part.
    """
    known, histories = with_history(rows, measures)
    spread = measures.note("history_std", known, [pstdev(history) for history in histories])
    ranked = sorted(range(len(known)), key=lambda at: -spread[at])
    return [known[at] for at in ranked[rank - 1 : rank - 1 + n]]


def lim(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    n: PositiveInt = 1,
    target: float | None = None,
) -> Iterable[Record]:
    """The `n` rows that learn in step with the whole set (LIM, arXiv:2502.11886), best first.

    s_i = 1 - sum_k (r_ik - R_k)^2 / sum_k (1 - R_k)^2, with r_ik the accuracy of row i at epoch k
    and R_k the mean over the rows. With a `target` those whose score is nearest to it: Polymath
    learning (arXiv:2601.03111) prefers about 0.6. Rows without a history take no part.
    """
    known, scores = lim_scores(rows, measures)
    misfit = [-score if target is None else abs(score - target) for score in scores]
    return [known[at] for at in sorted(range(len(known)), key=misfit.__getitem__)[:n]]


def lim_scores(rows: Iterable[Record], measures: Measures) -> tuple[list[Record], list[float]]:
    """The rows with a history and their LIM scores."""
    known, histories = with_history(rows, measures)
    means = epoch_means(histories)
    return known, measures.note("lim", known, [lim_score(one, means) for one in histories])


def lim_score(history: Sequence[float], means: Sequence[float]) -> float:
    """The score of one history against the means; epochs that the history lacks do not count."""
    pairs = list(zip(history, means, strict=False))
    off = sum((own - mean) ** 2 for own, mean in pairs)
    room = sum((1 - mean) ** 2 for _, mean in pairs)
    return 1 - off / room if room else float(off == 0)


def epoch_means(histories: Sequence[Sequence[float]]) -> list[float]:
    """The mean accuracy of each epoch, over the histories that reach it."""
    return [
        fmean(value for value in epoch if value is not None) for epoch in zip_longest(*histories)
    ]


def with_history(
    rows: Iterable[Record], measures: Measures
) -> tuple[list[Record], list[list[float]]]:
    """The rows that have a history and these, in the order of the record.

    Raises DataError where there are rows and none has a history.
    """
    given = list(rows)
    found = measures.histories(given)
    known = [(one, row) for row, one in zip(given, found, strict=True) if one is not None]
    if given and not known:
        why = f"none of {len(given)} rows is named in it, by id or by prompt"
        mend = "give the histories of these rows"
        raise DataError(Fault("no row has a history", "select.history", why, mend))
    known.sort(key=lambda pair: pair[0].place)
    return [row for _, row in known], [one.accuracies for one, _ in known]
