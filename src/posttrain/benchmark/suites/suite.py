"""What a suite is: a declaration of items, prompt format, scorer and what to know about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from posttrain.errors import ConfigError, Fault
from posttrain.records import Prompt


class Item(NamedTuple):
    """One question; `options` only where one of them is to be chosen."""

    prompt: Prompt
    options: tuple[str, ...] = ()


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
    """A benchmark. `scorer` is a key of SCORERS; `prompt` holds `{question}`.

    `limit` None takes all items; `samples` and `max_new_tokens` None those of the stage.
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

    def items(self, place: Place) -> list[Item]:
        """The items with the prompt format applied, each once, cut to `limit`.

        The cut goes by a hash of the id, so that a smaller limit gives a subset of a larger one
        and no subject or file is preferred.
        """
        found = {item.prompt.id: item for item in self.source.items(place)}
        if self.limit is not None and self.limit < len(found):
            by_hash = sorted(found, key=lambda item_id: sha256(item_id.encode()).digest())
            kept = set(by_hash[: self.limit])
            found = {item_id: item for item_id, item in found.items() if item_id in kept}
        return [self._formatted(item) for item in found.values()]

    def _formatted(self, item: Item) -> Item:
        text = self.prompt.replace("{question}", item.prompt.text)
        return item._replace(prompt=item.prompt.model_copy(update={"text": text}))


def choice(suite: Suite) -> Callable[..., Suite]:
    """The suite as a plug-in: its options are the keyword-only parameters."""

    def choose(
        *,
        limit: int | None = None,
        samples: int | None = None,
        max_new_tokens: int | None = None,
    ) -> Suite:
        given = {"limit": limit, "samples": samples, "max_new_tokens": max_new_tokens}
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
        return replace(
            suite,
            limit=limit or suite.limit,
            samples=samples or suite.samples,
            max_new_tokens=max_new_tokens or suite.max_new_tokens,
        )

    choose.__name__, choose.__doc__ = suite.name, suite.about
    return choose


def items_digest(items: Sequence[Item]) -> str:
    """A digest of a suite's items, in order: ids and answers."""
    lines = (f"{item.prompt.id} {item.prompt.answer}" for item in items)
    return sha256("\n".join(lines).encode()).hexdigest()
