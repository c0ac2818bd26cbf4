"""Preference pairs by what a seed judge says of them."""

import random
from collections.abc import Iterable
from typing import Literal

from pydantic import PositiveInt

from posttrain.records import Preference, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of


def seed_agreement(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    k: PositiveInt = 4,
    verdicts: Literal["drawn", "asked"] = "drawn",
) -> Iterable[Record]:
    """Pairs on which a seed judge is neither always right nor always wrong.

    Kept: 0 < accuracy < 1 over `k` samples of the judge, as for CE-RM's 5.7K pairs
    (arXiv:2601.20327; the rule and k = 4 are assumed). A judge of one score for a response has no
    samples: its verdicts are `drawn` with the chance that its margin gives (Bradley-Terry); one
    that samples is `asked` k times. Pairs that it gives no score are left out.
    """
    pairs = all_of(rows, Preference)
    shares = measures.agreements(pairs, k, ask=verdicts == "asked")
    return [row for row, share in zip(pairs, shares, strict=True) if 0 < share < 1]


def margin_band(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    low: float = -2.0,
    high: float = 4.0,
) -> Iterable[Record]:
    """Pairs whose margin by a seed judge, chosen less rejected, lies in [`low`, `high`] (assumed).

    Below are likely wrong labels, above pairs that teach nothing. Pairs without a score are left
    out.
    """
    pairs = all_of(rows, Preference)
    margins = measures.margins(pairs)
    return [row for row, margin in zip(pairs, margins, strict=True) if low <= margin <= high]
