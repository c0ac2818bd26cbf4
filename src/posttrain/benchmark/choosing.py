"""Which suites a run has, with which items, how it draws, and what is wrong with the choice."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from posttrain.benchmark.suites import CHOICES, Item, Place, Suite
from posttrain.benchmark.suites.sources import Generated, HeldOut
from posttrain.benchmark.suites.suite import items_digest
from posttrain.config import Plugin
from posttrain.errors import ConfigError, Fault, PosttrainError
from posttrain.exposure import EVALUATION, GENERATED, version_of
from posttrain.plugins import build
from posttrain.sandbox import backend_of

if TYPE_CHECKING:
    from posttrain.benchmark.stage import BenchmarkConfig
    from posttrain.engines import Sampling


def chosen(plugins: Sequence[Plugin], data_cutoff: str = "") -> list[Suite]:
    """The suites with their options; raises ConfigError for one that is named twice, and for a
    dated one whose release is older than what the policy was trained on."""
    suites = [build(CHOICES, plugin, "benchmark.suites")() for plugin in plugins]
    names = [suite.name for suite in suites]
    found = [
        Fault(
            f"suite `{name}` is named twice",
            "benchmark.suites",
            "its scores would be mixed up",
            "name every suite once",
        )
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    found += [
        Fault(
            f"release {suite.release} of `{suite.name}` is too old",
            f"benchmark.suites.{suite.name}.release",
            f"the training data go up to {data_cutoff}: the policy may have seen its items",
            "take a later release, or another suite",
        )
        for suite in suites
        if data_cutoff and "" < suite.release <= data_cutoff
    ]
    if found:
        raise ConfigError(*found)
    return suites


def need_sandbox(suites: Iterable[Suite], *, patient: bool) -> None:
    """Raise what keeps this machine from running the programs that suites ask for."""
    opted = [
        suite.scoring.get("allow_unsafe", False) for suite in suites if suite.scorer == "programs"
    ]
    if opted:
        backend_of(allow_unsafe=all(opted), patient=patient)


def read_items(
    suites: Sequence[Suite], place: Place, *, patient: bool = True
) -> dict[str, list[Item]]:
    """The items of each suite by its name; raises every fault at once. Who is patient waits for a
    sandbox service that is away."""
    items: dict[str, list[Item]] = {}
    errors: list[PosttrainError] = []
    try:
        need_sandbox(suites, patient=patient)
    except PosttrainError as error:
        errors.append(error)
    for suite in suites:
        try:
            items[suite.name] = suite.items(place)
        except PosttrainError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(*(fault for error in errors for fault in error.faults))
    return items


def origin_of(suite: Suite, place: Place) -> str:
    """Where a suite's items come from, for the gate to know whether training rows were checked
    against them: the evaluation port, a generator, or all items of its source as a version."""
    source = suite.source
    if isinstance(source, HeldOut):
        if source.otherwise is None or source.at_port(place):
            return EVALUATION
        source = source.otherwise
    if isinstance(source, Generated):
        return GENERATED
    return version_of(suite.name, items_digest(source.items(place)))


def draw_of(config: "BenchmarkConfig", suite: Suite) -> "Sampling":
    """How the samples are drawn that a suite's score is the mean of."""
    from posttrain.engines import Sampling

    return Sampling(
        samples=suite.samples or config.samples,
        temperature=config.temperature,
        top_p=config.top_p,
        max_new_tokens=suite.max_new_tokens or config.max_new_tokens,
        seed=config.seed,
    )
