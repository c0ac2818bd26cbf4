"""Accuracy histories: how often each training prompt was answered right, epoch by epoch.

A reader gives a mapping from a row's id, or from its prompt's text, to its accuracies in 0..1,
in the order of the record: rankings break ties by it. To add one, write the function, its `_reads`
and a line in HISTORIES and READS.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from posttrain.artifacts import ROWS, file_digest, read_rows
from posttrain.errors import DataError, Fault
from posttrain.plugins import Plugin, build
from posttrain.raw.sources.source import field, json_lines, require
from posttrain.records import Sample

Histories = Mapping[str, list[float]]


class History(NamedTuple):
    """The accuracies of one row, and its place in the record."""

    place: int
    accuracies: list[float]


ACCURACIES, PROMPTS = "one_shot_rlvr/acc_step_500.json", "one_shot_rlvr/dsr_sub.jsonl"


def file(*, path: str) -> Histories:
    """A JSON file that maps a row's id, or its prompt, to a list of accuracies."""
    return checked(path)


def one_shot_rlvr(*, folder: str) -> Histories:
    """The histories of the 1,209 prompts of One-Shot-RLVR (arXiv:2504.20571), by prompt.

    Of three prompts that are one text the first entry counts.
    """
    require(one_shot_rlvr_reads(folder=folder), "one_shot_rlvr")
    lines = json_lines(Path(folder) / PROMPTS)
    prompts = [str(field(line, "prompt")[0]["content"]) for line in lines]
    by_prompt: dict[str, list[float]] = {}
    for place, history in checked(str(Path(folder) / ACCURACIES)).items():
        by_prompt.setdefault(prompts[int(place)].strip(), history)
    return by_prompt


def scores(*, folders: tuple[str, ...]) -> Histories:
    """Scores of one set of prompts by successive checkpoints, an artifact folder each."""
    found: dict[str, list[float]] = {}
    for folder in folders:
        groups: dict[str, list[float]] = {}
        for sample in read_rows(Path(folder), Sample):
            groups.setdefault(sample.item_id, []).append(sample.correct)
        for item, correct in groups.items():
            found.setdefault(item, []).append(fmean(correct))
    return found


def checked(path: str) -> Histories:
    """The mapping of a JSON file; DataError where it is not one of accuracies."""
    require([Path(path)], "history")
    try:
        found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(Fault("not a JSON file", path, str(error), "write it again")) from None
    entries = found.items() if isinstance(found, dict) else [("the file", found)]
    for key, history in entries:
        numbers = isinstance(history, list) and all(type(n) in (int, float) for n in history)
        if not (numbers and history and all(0 <= n <= 1 for n in history)):
            why = f"{key!r} holds {str(history)[:60]!r}"
            mend = "map each row's id to a list of numbers from 0 to 1"
            raise DataError(Fault("not accuracy histories", path, why, mend))
    return dict(entries)


def file_reads(*, path: str) -> list[Path]:
    """The file itself."""
    return [Path(path)]


def one_shot_rlvr_reads(*, folder: str) -> list[Path]:
    """The accuracies and the prompts that they are of."""
    return [Path(folder) / ACCURACIES, Path(folder) / PROMPTS]


def scores_reads(*, folders: tuple[str, ...]) -> list[Path]:
    """The rows of every folder."""
    return [Path(folder) / ROWS for folder in folders]


HISTORIES: dict[str, Callable[..., Histories]] = {
    "file": file,
    "one_shot_rlvr": one_shot_rlvr,
    "scores": scores,
}

READS: dict[str, Callable[..., list[Path]]] = {
    "file": file_reads,
    "one_shot_rlvr": one_shot_rlvr_reads,
    "scores": scores_reads,
}


def digests(history: Plugin) -> str:
    """A line for each file that the reader reads: digest and name, without the folder."""
    paths = build(READS, history, "select.history")()
    found = [file_digest(path) if path.is_file() else "absent" for path in paths]
    return "".join(f"{digest}  {path.name}\n" for digest, path in zip(found, paths, strict=True))


def absent(history: Plugin) -> Iterator[Fault]:
    """A fault for each file that is not there."""
    for path in build(READS, history, "select.history")():
        if not path.is_file():
            mend = "set POSTTRAIN_DATA, or mend the option"
            yield Fault("no such file", str(path), f"`{history.name}` reads it", mend)
