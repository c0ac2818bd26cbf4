"""Which suites the training rows were checked against, for the report; and whether they are still
the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.artifacts import ROWS, file_digest
from posttrain.curate.filters.contamination import OWN, Contamination, of_suite
from posttrain.curate.ledger import Ledger, SuiteCheck
from posttrain.curate.mapping import Chain
from posttrain.curate.suites import changed_suite
from posttrain.exposure import EVALUATION
from posttrain.plugins import Plugin


def checked(
    operators: Chain, ledger: Ledger, evaluation: Path
) -> tuple[dict[str, SuiteCheck], dict[str, str]]:
    """What the training rows were checked against, and what they could not be."""
    suites: dict[str, SuiteCheck] = {}
    absent: dict[str, str] = {}
    for operator in (each for _, each in operators if isinstance(each, Contamination)):
        kept = ledger.by_kind()[EVALUATION].kept
        own = {EVALUATION: (kept, file_digest(evaluation / ROWS), OWN)}
        named = {name: (*found, of_suite(name)) for name, found in operator.versions.items()}
        for name, (items, version, what) in (own | named).items():
            dropped = ledger.dropped_as(what)
            suites[name] = SuiteCheck(items=items, version=version, dropped=dropped)
        absent |= operator.absent
    return suites, absent


def versions(operators: Chain) -> dict[str, str]:
    """The version of every suite that training rows are checked against."""
    made = [each.versions for _, each in operators if isinstance(each, Contamination)]
    return {name: version for found in made for name, (_, version) in found.items()}


def changed(filters: Sequence[Plugin], stored: Mapping[str, str]) -> str | None:
    """Why rows that were checked against the `stored` versions no longer are so, else None."""
    for options in (each.options for each in filters if each.name == "contamination"):
        suites, folder = options.get("suites", ()), options.get("data_folder", "")
        if name := changed_suite(suites, folder, stored):
            return f"the items of {name} in the data folder have changed"
    return None
