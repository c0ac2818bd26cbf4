"""sources -> rows: bring in or generate the raw rows.

Each source yields rows as they are, good and bad; to judge them is the work of `curate`.
Left out on purpose: downloading of files (DVC and the hub do that), and any cleaning.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import Out, content_files, digest_of, file_digest, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import RawRow

FILES_READ = "files.sha256"


class RawConfig(StageConfig):
    """Where the rows come from."""

    sources: list[Annotated[Plugin, Family("posttrain.raw.sources:SOURCES")]] = Field(
        [Plugin(name="procedural")],
        min_length=1,
        description="sources of rows, read in this order",
    )
    revision: str = Field(
        "",
        description="digest of the rows that are wanted, or its beginning; others are refused",
    )


class RawReport(Report):
    """What came in. `skipped` counts upstream rows that no row was made of, by source: reason."""

    rows: int
    kinds: dict[str, int]
    tasks: dict[str, int]
    sources: dict[str, int]
    difficulty: dict[str, int]
    skipped: dict[str, int]


class _Tally:
    """Counts of the rows that pass by."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.difficulty: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def add(self, row: RawRow) -> None:
        self.kinds[row.kind] += 1
        self.tasks[row.task] += 1
        self.sources[row.source] += 1
        self.difficulty["unknown" if row.difficulty is None else str(row.difficulty)] += 1

    def report(self) -> RawReport:
        counts = {name: dict(sorted(counter.items())) for name, counter in vars(self).items()}
        return RawReport(rows=self.kinds.total(), **counts)


def run(config: RawConfig, *, rows: Annotated[Path, Out(RawRow)], journal: Journal) -> RawReport:
    """Write the rows of every source in order."""
    from posttrain.raw.sources import SOURCES, Skipped

    sources = [build(SOURCES, plugin, "raw.sources") for plugin in config.sources]
    tally = _Tally()

    def read() -> Iterator[RawRow]:
        for done, source in enumerate(sources, 1):
            for row in source(config.seed):
                if isinstance(row, Skipped):
                    tally.skipped[f"{row.source}: {row.reason}"] += 1
                else:
                    tally.add(row)
                    yield row
            journal.progress(done, len(sources), "source")

    if not write_rows(rows, read()):
        why = f"the sources {', '.join(plugin.name for plugin in config.sources)} gave none"
        raise DataError(Fault("no rows", "raw.sources", why, "ask for more than 0 rows"))
    (rows / FILES_READ).write_text(_digests(config), encoding="utf-8")
    if config.revision:
        check_revision(rows, config.revision)
    return tally.report()


def check_revision(rows: Path, wanted: str) -> None:
    """Raise DataError unless the digest of the rows begins as wanted."""
    digest = digest_of(content_files(rows))
    if not digest.startswith(wanted):
        why = f"`{wanted}` is wanted, and the sources gave rows with the digest {digest}"
        mend = "bring back the files or the hub commits of that revision, or ask for this one"
        raise DataError(Fault("data of another revision", "raw.revision", why, mend))


def still_holds(outputs: Mapping[str, Path], config: RawConfig) -> str | None:
    """A stored result no longer holds when a file that a source read has changed."""
    stored = outputs["rows"] / FILES_READ
    if stored.is_file() and stored.read_text(encoding="utf-8") == _digests(config):
        return None
    return "a file that a source reads has changed"


def _digests(config: RawConfig) -> str:
    """A line for each file that the sources read: digest and name, without the folder."""
    from posttrain.raw.sources import files_read

    paths = [path for plugin in config.sources for path in files_read(plugin)]
    digests = [file_digest(path) if path.is_file() else "absent" for path in paths]
    return "".join(f"{digest}  {path.name}\n" for digest, path in zip(digests, paths, strict=True))
