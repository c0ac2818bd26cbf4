"""The suites that training rows are checked against.

Their declarations are imported late: most curations name none, and each process imports anew.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from posttrain.curate.batch import Batch
from posttrain.errors import ConfigError, Fault, PosttrainError, accepted
from posttrain.records import RawRow

if TYPE_CHECKING:
    from posttrain.benchmark.suites import Item

ALL = "all"


class Questions(NamedTuple):
    """The questions of a suite, without its prompt format; `version` is the digest of its items."""

    prompts: Batch
    version: str


def known_suites() -> list[str]:
    """All but `held_out`: that is the evaluation port itself, which is searched anyway."""
    from posttrain.benchmark.suites import SUITES

    return [name for name in SUITES if name != "held_out"]


def suites_of(
    names: Sequence[str], data_folder: str
) -> tuple[dict[str, Questions], dict[str, str]]:
    """The questions of the named suites, and why some of `all` cannot be had.

    All faults of those that are named are raised at once.
    """
    from posttrain.benchmark.suites import SUITES, Place

    found: dict[str, Questions] = {}
    absent: dict[str, str] = {}
    errors: list[PosttrainError] = []
    known = known_suites()
    for name in dict.fromkeys([*names, *known] if ALL in names else names):
        if name == ALL:
            continue
        if name not in known:
            where, mend = "curate.filters.contamination.suites", accepted(name, [*known, ALL])
            fault = Fault(f"unknown suite `{name}`", where, "no such suite", mend)
            errors.append(ConfigError(fault))
            continue
        try:
            found[name] = _questions(name, SUITES[name].source.items(Place(None, data_folder)))
        except PosttrainError as error:
            if name in names or not isinstance(error, ConfigError):
                errors.append(error)
            absent[name] = error.faults[0].why
    if errors:
        raise type(errors[0])(*(fault for error in errors for fault in error.faults))
    return found, absent


def changed_suite(names: Sequence[str], data_folder: str, stored: Mapping[str, str]) -> str | None:
    """The first suite whose files in the data folder are not the `stored` versions."""
    if not names:
        return None
    from posttrain.benchmark.suites import SUITES, Place
    from posttrain.benchmark.suites.sources import Upstream
    from posttrain.benchmark.suites.suite import items_digest

    known, place = known_suites(), Place(None, data_folder)
    for name in known if ALL in names else [each for each in names if each in known]:
        source = SUITES[name].source
        local = isinstance(source, Upstream) and source.local(place)
        if local and stored.get(name) != items_digest(source.items(place)):
            return name
    return None


def _questions(name: str, items: Sequence["Item"]) -> Questions:
    from posttrain.benchmark.suites.suite import items_digest

    rows = [
        RawRow.of(source=name, task=item.prompt.task, prompt=item.prompt.text, split="eval")
        for item in items
    ]
    return Questions(Batch.of(rows), items_digest(items))
