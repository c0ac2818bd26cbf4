"""The way of a row through artifacts: down to what it reached, up to where it came from.

Artifacts are joined by the digests in their manifests. A dataset is looked into: it holds the row
under its id, or rows made of it, which name it as their prompt or item. A model has learned from
every set that it was trained on, and what is made with that model was reached through it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import BaseModel

from posttrain.artifacts import JUDGE, POLICY, SCORES
from posttrain.lineage.asked import prompt_id_of, prompt_of
from posttrain.lineage.curated import becomes, curation_of
from posttrain.lineage.folders import Artifact, Sighting, made_from, own_id, parsed, rows_with
from posttrain.raw.stage import FILES_READ
from posttrain.records import RawRow, Sample
from posttrain.select.measures import FILE as MEASURES
from posttrain.select.measures import Measured

SHOWN = 3
MODELS = (POLICY, JUDGE)
TRAINED = "trained on a set that holds it"
THROUGH = "made with a model that learned from it"


class Step(BaseModel):
    """An artifact on the way of a row.

    It `holds` the row or what was made of it (`rows` by line, `ids` in order); the row was
    `dropped` or `left_out` before it; or a model that `learned` from the row is in it or behind it.
    """

    artifact: str
    record: str
    folder: str
    digest: str
    fate: Literal["holds", "dropped", "left_out", "learned"]
    says: str
    rows: list[int] = []
    ids: list[str] = []
    steps: list["Step"] = []


class Walk:
    """Steps by artifact, on the way down from a row."""

    def __init__(self, artifacts: Sequence[Artifact], row_id: str) -> None:
        self.artifacts, self.row_id = artifacts, row_id
        self.steps: dict[Artifact, Step] = {}
        self.sightings: dict[Artifact, list[Sighting]] = {}
        self.roots: list[Step] = []

    def down(self) -> list[Step]:
        """The trees of what the row reached; their roots hold it first, below where it came
        from."""
        seen: set[tuple[str, ...]] = set()
        for artifact in self.artifacts:
            if artifact.content in seen:
                continue
            seen.add(artifact.content)
            parents = made_from(artifact, [*self.steps])
            live = [p for p in parents if self.steps[p].fate in ("holds", "learned")]
            # Of several parents the one that holds the row tells more.
            live.sort(key=lambda parent: self.steps[parent].fate != "holds")
            step = self.below(artifact, live) if live else self.first(artifact)
            if step is None:
                continue
            self.steps[artifact] = step
            if live:
                self.steps[live[0]].steps.append(step)
            else:
                self.roots.append(self.above(step, artifact))
        return self.roots

    def first(self, artifact: Artifact) -> Step | None:
        """The step of an artifact that holds the row and that none above it explains."""
        found = [s for s in rows_with(artifact, [self.row_id]) if own_id(s.row) == self.row_id]
        return self.holds(artifact, found) if found else None

    def below(self, artifact: Artifact, parents: Sequence[Artifact]) -> Step | None:
        """The step of an artifact that is made from some that the row reached."""
        holders = [p for p in parents if self.steps[p].fate == "holds"]
        if artifact.manifest.record in MODELS:
            return step_of(artifact, "learned", TRAINED if holders else THROUGH)
        if artifact.record is None:
            return None
        raw = [parent for parent in holders if curates(parent, artifact)]
        if raw:
            return self.curated(artifact, [s for p in raw for s in self.sightings[p]])
        ids = {row_id for p in holders for row_id in self.steps[p].ids}
        found = [s for s in rows_with(artifact, ids) if {own_id(s.row), prompt_id_of(s.row)} & ids]
        if found:
            return self.holds(artifact, found, measured(artifact, ids))
        if len(holders) < len(parents):
            return step_of(artifact, "learned", THROUGH)
        if artifact.record is RawRow:
            return None
        return step_of(artifact, "left_out", "no row of it" + measured(artifact, ids))

    def curated(self, artifact: Artifact, raw: Sequence[Sighting]) -> Step | None:
        """The step of an output of curation: the row as it became, or why it was dropped."""
        mine = [s.row for s in raw if isinstance(s.row, RawRow)]
        mine = [row for row in mine if row.kind == artifact.manifest.port]
        if not mine:
            return None
        new = {becomes(row) for row in mine}
        found = [s for s in rows_with(artifact, new) if own_id(s.row) in new]
        curation = curation_of(artifact, self.artifacts)
        drops = curation.drops_of(self.row_id) if curation else []
        drops = [drop for drop in drops if drop.kind == artifact.manifest.port]
        told = "; ".join(sorted({f"dropped by {drop}" for drop in drops}))
        if len(drops) < len(mine):
            if found:
                copies = f" ({len(drops)} of {len(mine)} copies {told})" if drops else ""
                return self.holds(artifact, found, copies)
            lost = "neither kept nor dropped" if curation else "not in it; its drops are not here"
            return step_of(artifact, "left_out", lost)
        same = f"; its like was kept: {place(artifact, found)}" if found else ""
        return step_of(artifact, "dropped", told + same)

    def holds(self, artifact: Artifact, found: list[Sighting], more: str = "") -> Step:
        """The step of an artifact that holds the row, or rows made of it."""
        self.sightings[artifact] = found
        says = scored(found) if artifact.manifest.record == SCORES else place(artifact, found)
        ids = list(dict.fromkeys(own_id(s.row) for s in found))
        step = step_of(artifact, "holds", says + more)
        return step.model_copy(update={"rows": [s.line for s in found], "ids": ids})

    def above(self, step: Step, artifact: Artifact) -> Step:
        """A step under those that it came from, as far as they are among the artifacts."""
        row = self.sightings[artifact][0].row
        before = self.artifacts[: self.artifacts.index(artifact)]
        for parent in made_from(artifact, before):
            if curates(parent, artifact):
                seen, known = rows_with(parent, [prompt_of(row)]), own_id(row)
            else:
                known = prompt_id_of(row) or own_id(row)
                seen = rows_with(parent, [known])
            found = [s for s in seen if known in (own_id(s.row), _after(s, artifact))]
            if found:
                upper = self.holds(parent, found, self.fates(parent, found, artifact))
                upper.steps.append(step)
                return self.above(upper, parent)
        if artifact.inputs and artifact.record is not Sample:
            step.says += "; what it was made from is not here"
        return step

    def fates(self, parent: Artifact, found: Sequence[Sighting], artifact: Artifact) -> str:
        """Which of the raw rows behind a curated one were dropped."""
        made = curates(parent, artifact)
        curation = curation_of(artifact, self.artifacts) if made else None
        drops = [d for s in found for d in (curation.drops_of(own_id(s.row)) if curation else ())]
        return "".join(f"; {each}" for each in sorted({f"{d.id} dropped by {d}" for d in drops}))


def step_of(
    artifact: Artifact, fate: Literal["holds", "dropped", "left_out", "learned"], says: str
) -> Step:
    """A step without what it holds."""
    return Step(
        artifact=artifact.name,
        record=artifact.manifest.record,
        folder=str(artifact.folder),
        digest=artifact.manifest.digest,
        fate=fate,
        says=says,
    )


def curates(raw: Artifact, artifact: Artifact) -> bool:
    """Whether an artifact is what curation made of raw rows."""
    return raw.record is RawRow and artifact.record is not RawRow


def _after(sighting: Sighting, artifact: Artifact) -> str | None:
    """What a raw row becomes in an output of curation."""
    row = sighting.row
    if isinstance(row, RawRow) and row.kind == artifact.manifest.port:
        return becomes(row)
    return None


def place(artifact: Artifact, found: Sequence[Sighting]) -> str:
    """Where rows stand in an artifact, and what they are there."""
    lines = some([str(s.line) for s in found])
    ids = some(list(dict.fromkeys(own_id(s.row) for s in found)))
    raw = origin(artifact, found) if artifact.record is RawRow else ""
    rows = "rows" if len(found) > 1 else "row"
    return f"{rows} {lines} of {artifact.manifest.rows}, {artifact.manifest.record} {ids}{raw}"


def origin(artifact: Artifact, found: Sequence[Sighting]) -> str:
    """The sources of raw rows and, by digest, the files that they were read from: those that a
    source is named after, else all that were read."""
    sources = sorted({row.source for _, row in found if isinstance(row, RawRow)})
    path = artifact.folder / FILES_READ
    text = path.read_text(encoding="utf-8") if FILES_READ in artifact.manifest.files else ""
    read = [line.split("  ", 1) for line in text.splitlines()]
    own = [(d, name) for d, name in read if any(Path(name).stem in each for each in sources)]
    told = [f"{name} (sha256 {digest[:12]})" for digest, name in own or read]
    return f", from {', '.join(sources)}" + (f", read in {some(told)}" if told else "")


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def scored(found: Sequence[Sighting]) -> str:
    """How the samples of an item did, by suite."""
    suites: dict[str, list[float]] = {}
    for _, row in found:
        if isinstance(row, Sample):
            suites.setdefault(row.suite, []).append(row.correct)
    return "; ".join(
        f"{suite}: {fmean(rewards):.2g} correct over {len(rewards)} samples"
        for suite, rewards in suites.items()
    )


def measured(artifact: Artifact, ids: Iterable[str]) -> str:
    """What a selection measured of rows, chosen or not."""
    path, wanted = artifact.folder / MEASURES, set(ids)
    if MEASURES not in artifact.manifest.files:
        return ""
    rows = [row for _, row in parsed(path, Measured, wanted) if isinstance(row, Measured)]
    numbers = [
        f"{name} {value:.4g}"
        for row in rows
        if row.id in wanted
        for name, value in sorted(row.measures.items())
    ]
    return f"; measured: {some(numbers)}" if numbers else ""
