"""Where suites get their items: the evaluation port, a generator, public files or the hub."""

import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlparse

from posttrain.artifacts import read_rows
from posttrain.benchmark.suites.suite import Item, Place, Source
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.raw.sources.source import Line, file_lines
from posttrain.records import Prompt, RawRow, content_id
from posttrain.rewards.verifiers import verifier_of
from posttrain.tasks import BANDS, TASKS, generate_many

REACH_SECONDS = 5.0


@dataclass(frozen=True)
class Generated:
    """Problems of a procedural task: `n` of the eval split, all bands alike."""

    task: str
    n: int
    seed: int

    def items(self, place: Place) -> list[Item]:
        bands = dict.fromkeys(BANDS, 1.0)
        problems = generate_many(TASKS[self.task], self.n, bands, "eval", self.seed)
        return [
            Item(prompt_of(self.task, p.text, p.answer, f"procedural/{self.task}", p.difficulty))
            for p in problems
        ]


@dataclass(frozen=True)
class HeldOut:
    """Prompts at the `evaluation` port, of one task or (None) of all; where the port has none,
    those of `otherwise`."""

    task: str | None = None
    otherwise: Source | None = None

    def at_port(self, place: Place) -> list[Item]:
        """Those at the port."""
        rows = read_rows(place.evaluation, Prompt) if place.evaluation else iter(())
        return [Item(row) for row in rows if self.task in (None, row.task)]

    def items(self, place: Place) -> list[Item]:
        found = self.at_port(place)
        for task in dict.fromkeys(item.prompt.task for item in found):
            verifier_of(task)
        if found:
            return found
        if self.otherwise:
            return self.otherwise.items(place)
        raise ConfigError(
            Fault(
                "no evaluation prompts",
                "benchmark.suites: held_out",
                "the suite is what stands at the port `evaluation`",
                "give --evaluation, or take other suites",
            )
        )


class Hub(NamedTuple):
    """A data set of the Hugging Face hub at a fixed commit. `columns`: our name -> upstream's;
    `numbers` are columns that upstream writes as text."""

    name: str
    configuration: str | None
    split: str
    revision: str
    columns: Mapping[str, str] = {}
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upstream:
    """Rows of public files, `files` below the data folder, else the same from the hub.

    `read` makes items of a row and the name of its file.
    """

    files: tuple[str, ...]
    read: Callable[[Line, str], Iterator[Item]]
    hub: Hub | None = field(default=None, hash=False)

    def items(self, place: Place) -> list[Item]:
        paths = self.local(place)
        if paths:
            lines = ((line, name) for name in self.files for line in file_lines(paths[name]))
        elif self.hub:
            lines = ((line, self.files[0]) for line in hub_lines(self.hub))
        else:
            raise ConfigError(self._absent(place, "and no hub holds them in this form"))
        return [item for line, name in lines for item in self.read(line, name)]

    def local(self, place: Place) -> dict[str, Path]:
        """The files, if the data folder holds them all."""
        paths = {name: Path(place.data_folder) / name for name in self.files}
        whole = place.data_folder and all(path.is_file() for path in paths.values())
        return paths if whole else {}

    def _absent(self, place: Place, why: str) -> Fault:
        return Fault(
            "no items for a suite",
            place.data_folder or "benchmark.data_folder",
            f"{', '.join(self.files)}: not in the data folder, {why}",
            "set POSTTRAIN_DATA to a folder that has the files, or drop the suite",
        )


@dataclass(frozen=True)
class Paired(Upstream):
    """Questions in the first file, recorded answers in the second: the items that have both.

    `read` makes items of a question, `key` and `answer` find what belongs together.
    """

    key: Callable[[Line], str] = field(default=lambda line: line.where)
    answer: Callable[[Line], tuple[str, str]] = field(default=lambda line: (line.where, ""))

    def items(self, place: Place) -> list[Item]:
        paths = self.local(place)
        if not paths:
            raise ConfigError(self._absent(place, "and no hub holds them in this form"))
        questions, recorded = self.files
        answers = dict(self._answered(line) for line in file_lines(paths[recorded]))
        return [
            item._replace(options=(answers[self.key(line)],))
            for line in file_lines(paths[questions])
            if self.key(line) in answers
            for item in self.read(line, questions)
        ]

    def _answered(self, line: Line) -> tuple[str, str]:
        try:
            return self.answer(line)
        except (TypeError, KeyError, IndexError):
            why = "it does not hold an answer where the others do"
            raise DataError(Fault("bad answer", line.where, why, "mend the row")) from None


def hub_lines(hub: Hub) -> Iterator[Line]:
    """Rows of a hub data set under our column names; ConfigError when the hub is out of reach."""
    where = f"hub:{hub.name}@{hub.revision[:12]}"
    try:
        probe_hub()
        from datasets import load_dataset

        rows = load_dataset(hub.name, hub.configuration, split=hub.split, revision=hub.revision)
    except (OSError, ValueError) as error:
        raise ConfigError(
            Fault(
                "no items for a suite",
                where,
                f"no data folder has the files, and the hub: {str(error).split(chr(10))[0][:160]}",
                "set POSTTRAIN_DATA to the folder of the data files, or make the hub reachable",
            )
        ) from None
    for number, row in enumerate(rows):
        values = {**row, **{ours: row[theirs] for ours, theirs in hub.columns.items()}}
        for name in hub.numbers:
            values[name] = float(str(values[name]).replace(",", ""))
        yield Line(f"{where}:{number}", values)


def probe_hub() -> None:
    """Raise OSError at once where the hub is out of reach: its own client retries for 20 s."""
    from huggingface_hub import constants

    address = urlparse(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or address.scheme in urllib.request.getproxies():
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    socket.create_connection((address.hostname or "", port), REACH_SECONDS).close()


def prompt_of(
    task: str, text: str, answer: str, source: str, difficulty: int | None = None
) -> Prompt:
    """A prompt with its content id."""
    return Prompt(
        id=content_id(task, text),
        text=text,
        answer=answer,
        task=task,
        source=source,
        difficulty=difficulty,
    )


def held_out(rows: Iterator[object]) -> Iterator[Item]:
    """Items of the evaluation rows that a raw source reads; the raw source's split decides."""
    for row in rows:
        if isinstance(row, RawRow) and row.split == "eval":
            yield Item(prompt_of(row.task, row.prompt, row.answer or "", row.source))
