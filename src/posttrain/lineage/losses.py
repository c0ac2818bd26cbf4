"""What curation dropped: counts by reason, and some of the rows."""

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
from pydantic import BaseModel

from posttrain.lineage.curated import Curation, Drop
from posttrain.lineage.folders import rows_with
from posttrain.records import RawRow


class Losses(BaseModel):
    """rows_in = kept + dropped; `reasons`: `filter: reason` -> kind -> rows.

    `rows_in` is None where not all of its folders are at hand; then `kept` is of those that are.
    """

    folder: str
    rows_in: int | None
    kept: int
    dropped: int
    reasons: dict[str, dict[str, int]]


def losses_of(curation: Curation) -> Losses:
    """Count the drops of one run of curation."""
    counts = Counter((str(drop), drop.kind) for drop in curation.drops())
    reasons: dict[str, dict[str, int]] = {}
    for (reason, kind), count in sorted(counts.items()):
        reasons.setdefault(reason, {})[kind] = count
    return Losses(
        folder=str(curation.folder),
        rows_in=None if curation.absent or not curation.raw else curation.raw.manifest.rows,
        kept=sum(each.manifest.rows or 0 for each in curation.ports.values()),
        dropped=counts.total(),
        reasons=dict(sorted(reasons.items(), key=lambda pair: -sum(pair[1].values()))),
    )


def matching(asked: str, reasons: Collection[str]) -> list[str]:
    """The reasons that begin as asked, with or without their filter."""
    begin = asked.casefold()
    return [
        reason
        for reason in reasons
        if reason.casefold().startswith(begin)
        or reason.partition(": ")[2].casefold().startswith(begin)
    ]


def sampled(curation: Curation, reasons: Collection[str], limit: int) -> list[Drop]:
    """At most `limit` drops for some reasons, evenly spaced over them."""

    def wanted() -> Iterator[Drop]:
        return (drop for drop in curation.drops() if str(drop) in reasons)

    count = sum(1 for _ in wanted())
    places = {round(at) for at in np.linspace(0, count - 1, max(0, min(limit, count)))}
    return [drop for place, drop in enumerate(wanted()) if place in places]


def raw_rows(curation: Curation, drops: Collection[Drop]) -> dict[str, RawRow]:
    """The raw rows of some drops by id, where these are at hand."""
    found: dict[str, RawRow] = {}
    kinds = {drop.id: drop.kind for drop in drops}
    for _, row in rows_with(curation.raw, kinds) if curation.raw else ():
        if isinstance(row, RawRow) and kinds.get(row.id) == row.kind:
            found.setdefault(row.id, row)
    return found
