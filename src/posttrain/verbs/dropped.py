"""`posttrain dropped [REASON]`: the rows that curation dropped, counted by filter and reason.

REASON is a filter or the beginning of a reason; some rows that went for it are shown.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posttrain.command_line import Parser
from posttrain.curate.ledger import KINDS
from posttrain.errors import ConfigError, DataError, Fault, accepted
from posttrain.lineage import shown
from posttrain.lineage.curated import Audit, Curation, Drop, audit, curations
from posttrain.lineage.folders import artifacts_in
from posttrain.lineage.losses import Losses, losses_of, matching, raw_rows, sampled
from posttrain.records import RawRow
from posttrain.verbs.trace import add_folders


@dataclass
class Account:
    """What one run of curation dropped, and the rows that are shown of it."""

    curation: Curation
    losses: Losses
    audit: Audit | None = None
    reasons: Sequence[str] = ()
    drops: Sequence[Drop] = ()

    def rows(self) -> dict[str, RawRow]:
        """The raw rows of the drops, by id."""
        return raw_rows(self.curation, self.drops)


def main(argv: Sequence[str]) -> int:
    """Print counts and rows; DataError when a row came in and was neither kept nor dropped."""
    parser = Parser(prog="posttrain dropped", description=__doc__)
    parser.add_argument("reason", nargs="?", default="", metavar="REASON")
    add_folders(parser)
    parser.add_argument("--limit", type=int, default=5, help="rows that are shown [5]")
    parser.add_argument(
        "--audit", action="store_true", help="walk every row: in = kept + dropped, id by id"
    )
    parser.add_argument("--show-offensive", action="store_true", help="texts that may offend, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(list(argv))
    found = [Account(each, losses_of(each)) for each in curations(artifacts_in(given.run))]
    if not found:
        where = ", ".join(map(str, given.run))
        mend = "give a run folder or a store in which `curate` has run"
        raise DataError(Fault("no drops", where, "no folder with `dropped.jsonl` is there", mend))
    if given.reason:
        found = choose(found, given.reason, given.limit)
    for account in found if given.audit else ():
        account.audit = audit(account.curation)
    if given.json:
        print(json.dumps([as_json(each, given.show_offensive) for each in found], indent=2))
    else:
        print("\n".join(line for each in found for line in told(each, given.show_offensive)))
    faults = [fault for each in found for fault in unbalanced(each)]
    if faults:
        raise DataError(*faults)
    return 0


def choose(found: Sequence[Account], asked: str, limit: int) -> list[Account]:
    """The runs in which rows went for the reason, with rows to show; ConfigError if in none."""
    for account in found:
        account.reasons = matching(asked, account.losses.reasons)
        account.drops = sampled(account.curation, account.reasons, limit)
    if not any(account.reasons for account in found):
        known = {reason for account in found for reason in account.losses.reasons}
        why, mend = "no drop has such a reason", accepted(asked, known)
        raise ConfigError(Fault(f"unknown reason `{asked}`", "REASON", why, mend))
    return [account for account in found if account.reasons]


def told(account: Account, offensive: bool) -> Iterator[str]:
    """The account of one run, line by line."""
    losses = account.losses
    came = "" if losses.rows_in is None else f"{losses.rows_in} rows in = "
    yield f"{losses.folder}: {came}{losses.kept} kept + {losses.dropped} dropped"
    reasons = account.reasons or [*losses.reasons]
    width = max(map(len, reasons), default=0)
    kinds = [kind for kind in KINDS if any(kind in losses.reasons[reason] for reason in reasons)]
    yield f"  {'':<{width}}  {'rows':>7}" + "".join(f"  {kind}" for kind in kinds)
    for reason in reasons:
        counts = losses.reasons[reason]
        cells = "".join(f"  {counts.get(kind, 0):>{len(kind)}}" for kind in kinds)
        yield f"  {shown.plain(reason):<{width}}  {sum(counts.values()):>7}{cells}"
    if account.audit and account.audit.balanced:
        yield f"  every row accounted for, id by id: {account.audit.rows_in}"
    rows = account.rows()
    for drop in account.drops:
        about = f"{drop.id} for {drop.kind}, from {drop.source}, dropped by {drop}"
        yield f"\n{shown.plain(about)}"
        if drop.id in rows:
            yield from (f"  {line}" for line in shown.lines(rows[drop.id], offensive=offensive))


def as_json(account: Account, offensive: bool) -> dict[str, object]:
    """The account of one run as JSON."""
    rows = account.rows()
    return {
        **account.losses.model_dump(),
        "audit": account.audit.model_dump() if account.audit else None,
        "rows": [
            drop.model_dump()
            | {"texts": shown.texts(rows[drop.id], offensive=offensive) if drop.id in rows else {}}
            for drop in account.drops
        ],
    }


def unbalanced(account: Account) -> Iterator[Fault]:
    """What is wrong where not every row is accounted for."""
    losses, books = account.losses, account.audit
    mend = "run `curate` again with --force"
    if losses.rows_in not in (None, losses.kept + losses.dropped):
        why = f"{losses.rows_in} came in; {losses.kept} were kept, {losses.dropped} dropped"
        yield Fault("the books do not balance", losses.folder, why, mend)
    elif books and not books.balanced:
        why = f"lost: {', '.join(books.lost) or 'none'}; strange: {', '.join(books.strange)}"
        yield Fault("the books do not balance", losses.folder, why, mend)
