"""What a panel set is: items read from upstream files, and how a judge's answers are counted."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.benchmark.suites.sources import Hub, hub_lines
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, file_lines
from posttrain.reward_model.protocol import AnyJudge
from posttrain.reward_model.results import SetResult, Share

HASHED = 16


class Pair(NamedTuple):
    """Two responses as upstream shows them; `better` is 1, 2, or 0 for a tie.

    `votes` are single annotators' words in the same code, where upstream has them.
    """

    prompt: str
    first: str
    second: str
    better: int
    slice: str
    votes: tuple[int, ...] = ()


class Ranking(NamedTuple):
    """Responses that are right, and others that each of them should beat.

    `domain` is the category it counts in; `group` ties rankings of one question together.
    """

    prompt: str
    chosen: tuple[str, ...]
    rejected: tuple[str, ...]
    domain: str
    group: str = ""


Item = Pair | Ranking


class Measured(NamedTuple):
    """Numbers of a judge on a set; `headline` is the one of `scores` that a threshold is for."""

    headline: str
    overall: Share
    scores: dict[str, float]
    slices: dict[str, Share]
    unscored: int
    matrix: list[list[float]] | None = None


@dataclass(frozen=True)
class PanelSet:
    """Items, read before anything is trained, and the measure that counts them afterwards."""

    name: str
    source: str
    items: Sequence[Any]
    skipped: int
    measure: Callable[[AnyJudge, Sequence[Any]], Measured]
    min_score: float | None = None

    @property
    def digest(self) -> str:
        """A digest of the items, in order."""
        lines = (json.dumps(item, ensure_ascii=True) for item in self.items)
        return sha256("\n".join(lines).encode()).hexdigest()[:HASHED]

    def examine(self, judge: AnyJudge) -> SetResult:
        """Let the judge work through the set. A number that is not finite never passes."""
        found = self.measure(judge, self.items)
        value = found.scores[found.headline]
        return SetResult(
            source=self.source,
            digest=self.digest,
            items=len(self.items),
            skipped=self.skipped,
            unscored=found.unscored,
            headline=found.headline,
            overall=found.overall,
            scores=found.scores,
            slices=found.slices,
            matrix=found.matrix,
            min_score=self.min_score,
            passed=self.min_score is None or value >= self.min_score,
        )


def rows_of(data_folder: str, name: str, hub: Hub | None = None) -> Iterator[Line]:
    """Rows of an upstream file (JSON lines or one JSON array), else the same from the hub."""
    path = Path(data_folder) / name
    if data_folder and path.is_file():
        return file_lines(path)
    if hub is not None:
        return hub_lines(hub)
    raise DataError(
        Fault(
            "no such panel set file",
            str(path) if data_folder else "reward_model.data_folder",
            f"{name} is not in the data folder, and no hub holds it in this form",
            "set POSTTRAIN_DATA to the folder of the public data files, or leave the set out",
        )
    )


def bad_label(line: Line, name: str, value: object, known: str) -> DataError:
    """The error for a label that the format does not know."""
    return DataError(
        Fault(f"bad `{name}`: {value!r}", line.where, f"it is {known}", "mend the row")
    )


def limited(items: Sequence[Item], limit: int) -> list[Any]:
    """At most `limit` items (0: all) in their order, chosen by a hash of their content.

    So a smaller limit is a subset of a larger one, and no part of the file is preferred.
    """
    if not limit or limit >= len(items):
        return list(items)
    ranked = sorted(
        range(len(items)), key=lambda at: sha256(json.dumps(items[at]).encode()).digest()
    )
    return [items[at] for at in sorted(ranked[:limit])]
