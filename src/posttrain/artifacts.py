"""Artifacts: folders with a manifest that is written last, so its presence means complete.

A dataset folder holds `rows.jsonl`; a policy or judge folder is a plain Hugging Face folder.
The manifest names what the folder holds, the digest of its content and where it came from:
lineage without a server, and the cache key of whatever reads it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from posttrain.durable import discard, link_or_copy, rename, synced
from posttrain.errors import DataError, Fault
from posttrain.exposure import Exposure
from posttrain.records import Record

MANIFEST = "manifest.json"
ORIGIN = "origin.json"
CURVES = "curves.jsonl"
ABOUT = (MANIFEST, ORIGIN, CURVES)
"""Files about the content. The manifest is the same for the same work; origin and curves hold
what differs from run to run (times, commit, key), and DVC ignores them."""

ROWS = "rows.jsonl"
MAX_ROW_BYTES = 8 * 2**20

POLICY = "policy"
JUDGE = "judge"
SCORES = "scores"
VERDICT = "verdict"
PAGE = "page"
ANY = "any"

Row = TypeVar("Row", bound=Record)


@dataclass(frozen=True)
class Port:
    """What a path parameter of `run` holds: a record class (dataset folder) or a folder kind."""

    record: type[Record] | str
    output: bool

    @property
    def kind(self) -> str:
        return self.record if isinstance(self.record, str) else self.record.__name__


def In(record: type[Record] | str) -> Port:  # noqa: N802 - reads as a marker in annotations
    """Mark a path parameter as an input: `policy: Annotated[Path, In(POLICY)]`."""
    return Port(record, output=False)


def Out(record: type[Record] | str) -> Port:  # noqa: N802 - reads as a marker in annotations
    """Mark a path parameter as an output: `prompts: Annotated[Path, Out(Prompt)]`."""
    return Port(record, output=True)


class Manifest(BaseModel):
    """What stands in an artifact folder and how it came to be.

    `digest` covers the content, not the files about it; `exposure` is None where nobody can tell.
    The last four fields stand in `origin.json`; a folder that came through DVC is without them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    record: str
    rows: int | None
    digest: str
    files: dict[str, str]
    stage: str
    task: str
    port: str
    config: dict[str, Any]
    seed: int
    inputs: dict[str, str]
    report: dict[str, Any]
    exposure: Exposure | None = None
    key: str = ""
    git: str = "unknown"
    started: float = 0.0
    seconds: float = 0.0


ORIGIN_FIELDS = {"key", "git", "started", "seconds"}


def file_digest(path: Path) -> str:
    """sha256 of a file, streamed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_files(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every content file, sorted by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): file_digest(path)
        for path in files
        if path.parent != folder or path.name not in ABOUT
    }


def digest_of(files: dict[str, str]) -> str:
    """One digest over a table of paths and digests."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, never a part.

    It is on disk when this returns, whatever becomes of the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=2, sort_keys=True, allow_nan=True, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        rename(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_rows(folder: Path, rows: Iterable[Record], name: str = ROWS) -> int:
    """Write rows as JSON lines, in order; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with (folder / name).open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(row.model_dump_json(exclude_none=True) + "\n")
            count += 1
    return count


def read_rows(folder: Path, record: type[Row], name: str = ROWS) -> Iterator[Row]:
    """Yield the rows of a dataset folder; a bad row is a `DataError` that names its line."""
    path = folder / name
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield record.model_validate_json(line)
        except ValidationError as error:
            finding = error.errors()[0]
            field = ".".join(map(str, finding["loc"])) or "row"
            raise DataError(
                Fault(
                    f"bad {record.__name__} row: `{field}`: {finding['msg']}",
                    f"{path}:{number}",
                    f"the row starts {line[:80]!r}",
                    "mend or remove the row, or make the artifact again",
                )
            ) from None


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without line ends; refuse an absent file and endless lines."""
    if not path.is_file():
        raise DataError(Fault("no rows", str(path), "the file is not there", "check the path"))
    with path.open("rb") as file:
        for number in range(1, 2**62):
            line = file.readline(MAX_ROW_BYTES + 1)
            if not line:
                return
            if len(line) > MAX_ROW_BYTES:
                raise DataError(
                    Fault(
                        "row too long",
                        f"{path}:{number}",
                        f"the line has more than {MAX_ROW_BYTES} bytes",
                        "split the row, or check that the file is JSON lines",
                    )
                )
            yield line.rstrip(b"\r\n")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest; an artifact without one is not complete."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise DataError(
            Fault("no such artifact", str(folder), "the folder is not there", "check the path")
        )
    if not path.is_file():
        raise DataError(
            Fault(
                "artifact without a manifest",
                str(folder),
                "it is half-written, or no stage wrote it",
                "run the stage that makes it again; `posttrain base` or `posttrain raw`"
                " bring in folders from outside",
            )
        )
    try:
        origin = folder / ORIGIN
        about = json.loads(path.read_bytes()) | json.loads(
            origin.read_bytes() if origin.is_file() else b"{}"
        )
        return Manifest.model_validate(about)
    except (ValueError, TypeError) as error:
        raise DataError(
            Fault(
                "unreadable manifest",
                str(path),
                str(error).split("\n")[0],
                "run the stage that makes the artifact again",
            )
        ) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the files about a finished folder; the manifest last, for it means complete.

    The content must be on disk by then (`settle`).
    """
    write_json(folder / ORIGIN, manifest.model_dump(mode="json", include=ORIGIN_FIELDS))
    write_json(folder / MANIFEST, manifest.model_dump(mode="json", exclude=ORIGIN_FIELDS))


def verify(folder: Path, port: Port) -> Manifest:
    """Check that a folder is complete, undamaged and of the kind that the port takes."""
    manifest = read_manifest(folder)
    if port.kind not in (ANY, manifest.record):
        raise DataError(
            Fault(
                f"wrong kind of artifact: {manifest.record}",
                str(folder),
                f"a folder of {port.kind} is wanted; stage `{manifest.stage}` wrote this one"
                f" at its port `{manifest.port}`",
                f"give the path of a {port.kind} artifact",
            )
        )
    found = content_files(folder)
    damaged = sorted(
        name
        for name in found.keys() | manifest.files.keys()
        if found.get(name) != manifest.files.get(name)
    )
    if damaged or digest_of(found) != manifest.digest:
        raise DataError(
            Fault(
                "damaged artifact",
                f"{folder}: {', '.join(damaged[:5]) or MANIFEST}",
                "the content does not match the digest in its manifest",
                f"delete the folder and run `{manifest.task}` again",
            )
        )
    return manifest


def publish(source: Path, target: Path, manifest: Manifest) -> None:
    """Make `target` a copy of the complete folder `source`, appearing all at once.

    Files are hard-linked where the file system allows, else copied. `manifest` is the copy's: it
    may tell more than that of the source.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{target.name}.[0-9]*.partial"):
        shutil.rmtree(left)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.copytree(source, partial, copy_function=link_or_copy)
    if manifest != read_manifest(partial):
        write_manifest(partial, manifest)
    for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
        synced(folder)
    if not target.is_symlink():
        discard(target)
    rename(partial, target)
