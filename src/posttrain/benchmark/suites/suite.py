"""What a suite is: a declaration of items, prompt format, scorer and what to know about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import Field

from posttrain.benchmark.formulas import order_metrics
from posttrain.benchmark.metrics import Metric
from posttrain.errors import ConfigError, Fault
from posttrain.records import Prompt

DAY = r"^\d{4}-\d{2}-\d{2}$"

OPTIONS_SHOWN = 5
"""Letters whose share of choices is reported, A to E."""


class Item(NamedTuple):
    """One question. `options` only where one of them is to be chosen, or where a text is to be
    judged: the steps of a solution, the answer of an opponent.

    `labels` says of each option whether it is right; `category` is the item's slice of the suite;
    `orders` are the orders in which options are shown under letters, none for texts alone;
    `released` and `removed` are dates (2024-11-25) of a suite that comes in dated releases.
    """

    prompt: Prompt
    options: tuple[str, ...] = ()
    labels: tuple[bool, ...] = ()
    category: str = ""
    orders: tuple[tuple[int, ...], ...] = ()
    released: str = ""
    removed: str = ""


class Place(NamedTuple):
    """Where items may come from: the evaluation port, and the folder of public data files."""

    evaluation: Path | None = None
    data_folder: str = ""


class Source(Protocol):
    """Gives the items of a suite, always the same in the same order."""

    def items(self, place: Place) -> list[Item]:
        """Read or generate them; ConfigError where there is no way to get them."""


@dataclass(frozen=True)
class Suite:
    """A benchmark. `scorer` is a key of SCORERS or JUDGED; `prompt` holds `{question}`.

    `metric` is the mean of `correct`, `metrics` are those made of a row's measures. `limit` None
    takes all items; `samples` and `max_new_tokens` None those of the stage. `permutations`: in how
    many rotations options are shown, 0 for texts alone. `sensitive`: offensive text. `release`:
    the date of the release to take, of a suite that comes in dated ones. `scoring`: options of the
    scorer.
    """

    name: str
    about: str
    source: Source
    paper: str
    licence: str
    contamination: str
    scorer: str = "verified"
    metric: str = "pass_at_1"
    prompt: str = "{question}"
    limit: int | None = None
    samples: int | None = None
    max_new_tokens: int | None = None
    metrics: tuple[Metric, ...] = ()
    permutations: int = 0
    sensitive: bool = False
    release: str = ""
    scoring: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def items(self, place: Place) -> list[Item]:
        """The items with the prompt format applied, each once, cut to `limit`.

        The cut goes by a hash of the id, so that a smaller limit gives a subset of a larger one
        and no subject or file is preferred.
        """
        found = {item.prompt.id: item for item in self.source.items(place) if self._holds(item)}
        if self.limit is not None and self.limit < len(found):
            by_hash = sorted(found, key=lambda item_id: sha256(item_id.encode()).digest())
            kept = set(by_hash[: self.limit])
            found = {item_id: item for item_id, item in found.items() if item_id in kept}
        return [self._formatted(item) for item in found.values()]

    def _holds(self, item: Item) -> bool:
        """Whether the item is in the release: out by then, and not yet removed."""
        if not self.release:
            return True
        return item.released <= self.release and not "" < item.removed <= self.release

    def _formatted(self, item: Item) -> Item:
        text = self.prompt.replace("{question}", item.prompt.text)
        n = len(item.options)
        orders = tuple(
            tuple((place + turn) % n for place in range(n))
            for turn in range(min(self.permutations, n))
        )
        prompt = item.prompt.model_copy(update={"text": text})
        return item._replace(prompt=prompt, orders=orders)


def choice(suite: Suite) -> Callable[..., Suite]:
    """The suite as a plug-in: its options are the keyword-only parameters."""
    if suite.release:
        choose = _dated(suite)
    elif suite.scorer == "multiple_choice":
        choose = _permuted(suite)
    elif suite.scorer == "programs":
        choose = _programs(suite)
    else:
        choose = _plain(suite)
    choose.__name__, choose.__doc__ = suite.name, suite.about
    return choose


def _plain(suite: Suite) -> Callable[..., Suite]:
    def choose(
        *,
        limit: int | None = None,
        samples: int | None = None,
        max_new_tokens: int | None = None,
    ) -> Suite:
        return _chosen(suite, limit=limit, samples=samples, max_new_tokens=max_new_tokens)

    return choose


def _permuted(suite: Suite) -> Callable[..., Suite]:
    """`permutations`: show the options under letters, in so many rotations, and choose a letter."""

    def choose(*, limit: int | None = None, permutations: int | None = None) -> Suite:
        chosen = _chosen(suite, limit=limit, permutations=permutations)
        if permutations is None:
            return chosen
        return replace(chosen, metrics=(*suite.metrics, *order_metrics(OPTIONS_SHOWN)))

    return choose


def _dated(suite: Suite) -> Callable[..., Suite]:
    """`release`: the items that were out and not removed on that day."""

    def choose(
        *,
        limit: int | None = None,
        samples: int | None = None,
        max_new_tokens: int | None = None,
        release: Annotated[str, Field(pattern=DAY)] = suite.release,
    ) -> Suite:
        chosen = _chosen(suite, limit=limit, samples=samples, max_new_tokens=max_new_tokens)
        return replace(chosen, release=release)

    return choose


def _programs(suite: Suite) -> Callable[..., Suite]:
    """Limits of the sandbox, how many run at a time, and whether limits alone will do."""

    def choose(
        *,
        limit: int | None = None,
        samples: int | None = None,
        max_new_tokens: int | None = None,
        workers: Annotated[int, Field(ge=0)] = 0,
        seconds: Annotated[float, Field(gt=0)] = 10.0,
        memory_mib: Annotated[int, Field(ge=64)] = 512,
        allow_unsafe: bool = False,
    ) -> Suite:
        chosen = _chosen(suite, limit=limit, samples=samples, max_new_tokens=max_new_tokens)
        limits = {"seconds": seconds, "memory_mib": memory_mib}
        scoring = {"workers": workers, "allow_unsafe": allow_unsafe, **limits}
        return replace(chosen, scoring=scoring)

    return choose


def _chosen(suite: Suite, **given: int | None) -> Suite:
    """The suite with the numbers that are given; each must be positive."""
    faults = [
        Fault(
            f"bad value for `{name}`: {value}",
            f"benchmark.suites.{suite.name}.{name}",
            "it is below 1",
            "give a positive number, or leave it out",
        )
        for name, value in given.items()
        if value is not None and value < 1
    ]
    if faults:
        raise ConfigError(*faults)
    numbers: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(suite, **numbers)


def items_digest(items: Sequence[Item]) -> str:
    """A digest of a suite's items, in order: ids and answers."""
    lines = (
        f"{item.prompt.id} {item.prompt.answer}" + "".join(f" {int(each)}" for each in item.labels)
        for item in items
    )
    return sha256("\n".join(lines).encode()).hexdigest()
