"""Artifact folders and their rows, searched for texts without parsing what lacks them.

Memory is bounded by the longest row: a file is read in blocks, and only lines that hold one of the
texts are parsed.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from posttrain import records
from posttrain.artifacts import MANIFEST, MAX_ROW_BYTES, ROWS, SCORES, Manifest, read_manifest
from posttrain.errors import DataError, Fault
from posttrain.records import Record

BLOCK = 2**20

RECORDS: dict[str, type[Record]] = {
    each.__name__: each
    for each in (records.RawRow, records.Prompt, records.Demonstration, records.Preference)
} | {SCORES: records.Sample}
"""What the rows of an artifact are, by the record in its manifest; models have none."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """A complete artifact folder."""

    folder: Path
    manifest: Manifest

    @cached_property
    def name(self) -> str:
        """Task and port, as in `curate.prompts`."""
        return f"{self.manifest.task}.{self.manifest.port}"

    @property
    def record(self) -> type[Record] | None:
        """The record of its rows; None for a model or a page."""
        return RECORDS.get(self.manifest.record) if ROWS in self.manifest.files else None

    @property
    def inputs(self) -> set[str]:
        """The digests of what it was made from."""
        return set(self.manifest.inputs.values())

    @property
    def content(self) -> tuple[str, ...]:
        """What it is and what it was made from, whichever run of the task it was."""
        return (self.name, self.manifest.digest, *sorted(self.inputs))

    def same_run(self, other: "Artifact") -> bool:
        """Whether both are outputs of one run of a task."""
        mine, its = self.manifest, other.manifest
        same = (mine.task, mine.key, mine.inputs) == (its.task, its.key, its.inputs)
        return same and mine.config == its.config


class Sighting(NamedTuple):
    """A row and its line in the file, from 1."""

    line: int
    row: Record


def artifacts_in(folders: Iterable[Path]) -> list[Artifact]:
    """The artifacts of run folders, stores or any other folders, what is made from another behind
    it; those of one run of a task once. DataError where there is none."""
    folders = list(folders)
    found: dict[tuple[object, ...], Artifact] = {}
    for folder in folders:
        for path in artifact_folders(folder):
            artifact = Artifact(path, read_manifest(path))
            found.setdefault((artifact.content, artifact.manifest.key), artifact)
    if not found:
        where = ", ".join(map(str, folders))
        mend = "give run folders, a store, or folders that stages wrote"
        raise DataError(Fault("no artifacts", where, f"no {MANIFEST} is there", mend))
    return in_order(found.values())


def artifact_folders(folder: Path) -> Iterator[Path]:
    """Where the tasks of a run folder left their outputs; else every folder with a manifest."""
    records_ = sorted((folder / "stages").glob("*.json"))
    outputs = [
        Path(output["path"])
        for record in records_
        for output in json.loads(record.read_text(encoding="utf-8"))["outputs"].values()
    ]
    if outputs and all((output / MANIFEST).is_file() for output in outputs):
        here = Path.cwd()
        yield from (o.relative_to(here) if o.is_relative_to(here) else o for o in outputs)
        return
    for path in sorted(folder.rglob(MANIFEST)):
        parts = path.relative_to(folder).parts
        # A store's `work` and dotted folders hold what is still being written.
        if parts[0] != "work" and not any(part.startswith(".") for part in parts):
            yield path.parent


def in_order(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Artifacts, each behind those that it was made from."""
    by_digest: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        by_digest.setdefault(artifact.manifest.digest, []).append(artifact)
    seen: set[str] = set()
    found: list[Artifact] = []

    def visit(digest: str) -> None:
        if digest in seen:
            return
        seen.add(digest)
        # A selection of every row has the digest of its input, and stands behind it.
        own = sorted(by_digest.get(digest, ()), key=lambda a: (digest in a.inputs, a.name))
        for artifact in own:
            for each in sorted(artifact.inputs):
                visit(each)
        found.extend(own)

    for digest in by_digest:
        visit(digest)
    return found


def lines_with(path: Path, texts: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that hold one of some texts, with their numbers from 1."""
    passed = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            block += file.readline(MAX_ROW_BYTES)
            told = 0
            for start in sorted({start for text in texts for start in _starts(block, text)}):
                passed += block.count(b"\n", told, start)
                told = start
                end = block.find(b"\n", start)
                yield passed + 1, block[start : end if end >= 0 else len(block)]
            passed += block.count(b"\n", told)


def _starts(block: bytes, text: bytes) -> Iterator[int]:
    """Where the lines begin that hold a text."""
    at = block.find(text)
    while at >= 0:
        yield block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at)
        at = block.find(text, end) if end >= 0 else -1


def rows_with(
    artifact: Artifact, texts: Iterable[str], *, part: bool = False
) -> Iterator[Sighting]:
    """The rows of an artifact of which a field is one of some texts; with `part`: holds one."""
    if artifact.record:
        yield from parsed(artifact.folder / ROWS, artifact.record, texts, part=part)


def parsed(
    path: Path, record: type[Record], texts: Iterable[str], *, part: bool = False
) -> Iterator[Sighting]:
    """The rows of a file of which a field is, or holds a part that is, one of some texts."""
    needles = {to_json(text)[1:-1] if part else to_json(text) for text in texts}
    for number, line in lines_with(path, needles):
        try:
            row = record.model_validate_json(line)
        except ValidationError as error:
            finding = error.errors()[0]["msg"]
            what, where = f"bad {record.__name__} row: {finding}", f"{path}:{number}"
            mend = "make the artifact again"
            raise DataError(Fault(what, where, "the file has changed", mend)) from None
        yield Sighting(number, row)


def own_id(row: Record) -> str:
    """The id of a row; of a sample that of its item."""
    return str(getattr(row, "id", None) or getattr(row, "item_id", ""))


def made_from(artifact: Artifact, others: Sequence[Artifact]) -> list[Artifact]:
    """Those of some artifacts that are inputs of one."""
    return [
        other
        for other in others
        if other is not artifact and other.manifest.digest in artifact.inputs
    ]
