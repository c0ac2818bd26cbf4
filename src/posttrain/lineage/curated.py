"""What curation made of raw rows: the ids it gave them, and why it dropped the others."""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from posttrain.artifacts import read_rows
from posttrain.curate.ledger import KINDS
from posttrain.curate.stage import DROPPED
from posttrain.errors import DataError, Fault
from posttrain.lineage.folders import Artifact, own_id, parsed
from posttrain.records import RawRow, Record, content_id

EXAMPLES = 5
Keys = NDArray[np.int64]


class Drop(Record):
    """A line of `dropped.jsonl`."""

    id: str
    kind: str
    source: str
    filter: str
    reason: str

    def __str__(self) -> str:
        return f"{self.filter}: {self.reason}"


class Curation(NamedTuple):
    """One run of curation, as far as its folders are known; `ports` by name."""

    raw: Artifact | None
    ports: dict[str, Artifact]

    @property
    def folder(self) -> Path:
        """Where its drops are."""
        return self.ports["prompts"].folder

    @property
    def absent(self) -> list[str]:
        """The ports whose folders are not known."""
        return ["rows"] * (self.raw is None) + [kind for kind in KINDS if kind not in self.ports]

    def drops(self) -> Iterator[Drop]:
        """Every row that it dropped."""
        return read_rows(self.folder, Drop, DROPPED)

    def drops_of(self, row_id: str) -> list[Drop]:
        """The drops of one raw row: as many as there were copies that went."""
        found = (drop for _, drop in parsed(self.folder / DROPPED, Drop, [row_id]))
        return [drop for drop in found if isinstance(drop, Drop) and drop.id == row_id]


def curations(artifacts: Sequence[Artifact]) -> list[Curation]:
    """The runs of curation whose drops are among some artifacts."""
    raw = {a.manifest.digest: a for a in artifacts if a.record is RawRow}
    found = []
    for each in artifacts:
        if DROPPED in each.manifest.files:
            ports = {a.manifest.port: a for a in artifacts if a.same_run(each)}
            found.append(Curation(raw.get(each.manifest.inputs.get("rows", "")), ports))
    return found


def curation_of(artifact: Artifact, artifacts: Sequence[Artifact]) -> Curation | None:
    """The run of curation that wrote an artifact, if its drops are known."""
    return next((c for c in curations(artifacts) if artifact in c.ports.values()), None)


def becomes(row: RawRow) -> str:
    """The id of a raw row once it is curated (`posttrain.curate.rows`)."""
    prompt_id = content_id(row.task, row.prompt)
    if row.kind == "demonstrations":
        return content_id(prompt_id, row.response or "")
    if row.kind == "preferences":
        return content_id(prompt_id, row.chosen or "", row.rejected or "")
    return prompt_id


class Audit(BaseModel):
    """Rows of one run of curation, counted by their ids one by one: in = kept + dropped.

    `lost` are ids of raw rows that are neither; `strange` ids of curated rows that no raw row
    became, or of drops that never came in; some of each.
    """

    rows_in: int = 0
    kept: int = 0
    dropped: int = 0
    lost: list[str] = []
    strange: list[str] = []

    @property
    def balanced(self) -> bool:
        """Whether every row is accounted for."""
        return self.rows_in == self.kept + self.dropped and not (self.lost or self.strange)


def key_of(kind: str, row_id: str) -> int:
    """A 64-bit number of an id within a kind, for this process."""
    return hash((kind, row_id))


def audit(curation: Curation) -> Audit:
    """Walk every raw row, every curated row and every drop, keeping 16 bytes of each.

    Raises DataError where a folder that must be walked is not at hand.
    """
    raw, came, turned = curation.raw, array("q"), array("q")
    if raw is None or curation.absent:
        why = f"of this run of `curate` these are not here: {', '.join(curation.absent)}"
        mend = "give their folders with --run"
        raise DataError(Fault("nothing to audit", str(curation.folder), why, mend))
    for row in read_rows(raw.folder, RawRow):
        came.append(key_of(row.kind, row.id))
        turned.append(key_of(row.kind, becomes(row)))
    rows_in, made = np.asarray(came), np.asarray(turned)
    dropped = np.fromiter((key_of(d.kind, d.id) for d in curation.drops()), np.int64)
    kept = np.fromiter((key_of(kind, own_id(row)) for kind, row in _kept(curation)), np.int64)
    gone = np.isin(rows_in, dropped)
    lost = less(made[~gone], kept)
    # Of copies some may stay: which of them did cannot be told, and need not be.
    strange = np.setdiff1d(less(kept, made[~gone]), made[gone])
    unknown = less(dropped, rows_in)
    found = Audit(rows_in=len(rows_in), kept=len(kept), dropped=len(dropped))
    if len(lost):
        every = read_rows(raw.folder, RawRow)
        found.lost = _some(((row.kind, becomes(row), row.id) for row in every), lost)
    if len(strange) or len(unknown):
        rows = ((kind, own_id(row), own_id(row)) for kind, row in _kept(curation))
        drops = ((drop.kind, drop.id, drop.id) for drop in curation.drops())
        found.strange = _some(itertools.chain(rows, drops), np.union1d(strange, unknown))
    return found


def _kept(curation: Curation) -> Iterator[tuple[str, Record]]:
    """The curated rows with their kinds."""
    for kind in KINDS:
        artifact = curation.ports[kind]
        assert artifact.record
        for row in read_rows(artifact.folder, artifact.record):
            yield kind, row


def less(keys: Keys, others: Keys) -> Keys:
    """The keys of which there are more than among the others."""
    values, at = np.unique(np.concatenate([keys, others]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(values)) for part in np.split(at, [len(keys)])]
    return values[counts[0] > counts[1]]


def _some(ids: Iterable[tuple[str, str, str]], keys: Keys) -> list[str]:
    """Some ids whose keys are among others: each triple is a kind, the id of the key, the id."""
    wanted = set(keys.tolist())
    found = (shown for kind, row_id, shown in ids if key_of(kind, row_id) in wanted)
    return sorted(set(itertools.islice(found, EXAMPLES)))
