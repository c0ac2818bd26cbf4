"""Run one stage: verify its inputs, look in the store, run, seal, publish, record.

The key of a run is the digest of stage, task, resolved config, inputs, code and packages. A
finished key is never run again; a killed one finds its scratch under the same key.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain import interruption, provenance
from posttrain.artifacts import (
    ANY,
    CURVES,
    PAGE,
    ROWS,
    VERDICT,
    Manifest,
    content_files,
    digest_of,
    publish,
    read_lines,
    read_manifest,
    verify,
    write_json,
    write_manifest,
)
from posttrain.config import StageConfig
from posttrain.disk import locked, mended_disk_at
from posttrain.durable import discard, rename, settle
from posttrain.errors import DataError, Fault, PosttrainError
from posttrain.exposure import behind
from posttrain.journal import Journal
from posttrain.stages import PortParameter, Stage

RECORD = "record.json"


@dataclass(frozen=True)
class Request:
    """One stage to run: where its inputs are and where its outputs shall appear. `costs` tells of a
    finished task's record what the task has cost."""

    stage: Stage
    task: str
    config: StageConfig
    inputs: Mapping[str, Path | Sequence[Path]]
    outputs: Mapping[str, Path]
    store: Path
    run_folder: Path | None = None
    force: bool = False
    recipe: str = ""
    costs: Callable[[Mapping[str, Any]], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Key:
    """What decides whether a stage must run: the parts, and their digest."""

    parts: Mapping[str, Any]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        text = json.dumps(self.parts, sort_keys=True)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest()[:32])


def execute(request: Request) -> dict[str, Any]:
    """Run or restore a stage and return its record; raise a `PosttrainError` for the user."""
    started = time.time()
    for target in (*request.outputs.values(), request.store / "work"):
        with mended_disk_at(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(target.parent, os.W_OK):
                raise PermissionError(errno.EACCES, "no permission to write", str(target.parent))
    manifests = verify_inputs(request)
    key = key_of(request, manifests)
    before = previous_record(request)
    entry = request.store / key.digest
    with locked(request.store / "locks" / key.digest), mended_disk_at(request.store):
        stale = miss(request, entry)
        cached = stale is None
        reason = "unchanged: restored from the store" if cached else why(stale or "", before, key)
        if not cached:
            with interruption.at_work():
                make(request, key, entry, manifests, started)
        record = json.loads((entry / RECORD).read_text(encoding="utf-8"))
        for parameter in request.stage.outputs:
            told = with_exposure(request, parameter, entry, manifests, record["report"])
            publish(entry / parameter.name, request.outputs[parameter.name], told)
        discard(request.store / "work" / key.digest)
    record |= {
        "task": request.task,
        "recipe": request.recipe,
        "cached": cached,
        "reason": reason,
        "started": started,
        "ended": time.time(),
        "key_parts": key.parts,
        "outputs": {
            port: {"path": str(target), "digest": read_manifest(target).digest}
            for port, target in request.outputs.items()
        },
    }
    record["cost"] = request.costs(record) if request.costs else {}
    if request.run_folder:
        with mended_disk_at(request.run_folder):
            keep_record(request, record, entry)
    return dict(record)


def key_of(request: Request, manifests: Mapping[str, list[Manifest]]) -> Key:
    """The key of a request, whose inputs have these manifests."""
    parts: dict[str, Any] = {
        "stage": request.stage.name,
        "task": request.task,
        "config": request.config.model_dump(mode="json"),
        "inputs": {port: [m.digest for m in found] for port, found in manifests.items()},
        "code": provenance.code(request.stage.name),
        "packages": provenance.packages(),
    }
    if request.stage.reads_exposure:
        parts["exposure"] = {
            port: [m.exposure.model_dump(mode="json") if m.exposure else None for m in found]
            for port, found in manifests.items()
        }
    return Key(parts)


def expected_key(request: Request) -> Key:
    """The key that `execute` finds if the inputs are what their manifests say."""
    manifests: dict[str, list[Manifest]] = {}
    for port, given in request.inputs.items():
        folders = [given] if isinstance(given, Path) else given
        manifests[port] = [read_manifest(folder) for folder in folders]
    return key_of(request, manifests)


def seems_held(request: Request) -> bool:
    """Whether the store looks as if it had the result; `execute` verifies that."""
    try:
        return (request.store / expected_key(request).digest / RECORD).is_file()
    except PosttrainError:
        return False


def with_exposure(
    request: Request,
    parameter: PortParameter,
    entry: Path,
    manifests: Mapping[str, list[Manifest]],
    report: Mapping[str, Any],
) -> Manifest:
    """The manifest of an output, which says what tests its data were checked against.

    That of the store does not: the same rows may since have been checked against more tests, and a
    restored result shall tell of it without being made again.
    """
    manifest = read_manifest(entry / parameter.name)
    if parameter.port.kind in (VERDICT, PAGE):
        return manifest
    own = request.stage.exposure
    found = own(request.config, report) if own else behind(manifests)
    return manifest.model_copy(update={"exposure": found})


def verify_inputs(request: Request) -> dict[str, list[Manifest]]:
    """Verify every input folder; raise all faults at once."""
    faults: list[Fault] = []
    manifests: dict[str, list[Manifest]] = {}
    for parameter in request.stage.inputs:
        given = request.inputs.get(parameter.name, ())
        for folder in [given] if isinstance(given, Path) else given:
            try:
                found = verify(folder, parameter.port)
                manifests.setdefault(parameter.name, []).append(found)
            except PosttrainError as error:
                faults += error.faults
            except PermissionError as error:
                mend = "give this user leave to read it"
                faults.append(
                    Fault("cannot read", str(error.filename), os.strerror(errno.EACCES), mend)
                )
    if faults:
        raise DataError(*faults)
    return manifests


def given_inputs(
    request: Request, manifests: Mapping[str, list[Manifest]]
) -> dict[str, Path | Sequence[Path]]:
    """The inputs that `run` gets: an artifact without content at an optional port is none."""
    optional = {p.name for p in request.stage.inputs if not p.required and not p.many}
    return {
        port: given
        for port, given in request.inputs.items()
        if port not in optional or manifests[port][0].files
    }


def miss(request: Request, entry: Path) -> str | None:
    """Why the store cannot serve the key; None when it can."""
    if request.force:
        return "forced"
    if not (entry / RECORD).is_file():
        return "not in the store"
    for parameter in request.stage.outputs:
        try:
            verify(entry / parameter.name, parameter.port)
        except PosttrainError:
            return "the stored outputs were damaged"
    if request.stage.still_holds:
        return request.stage.still_holds(
            {p.name: entry / p.name for p in request.stage.outputs}, request.config
        )
    return None


def make(
    request: Request,
    key: Key,
    entry: Path,
    manifests: Mapping[str, list[Manifest]],
    started: float,
) -> None:
    """Run the stage in its work folder, seal its outputs and move them into the store."""
    work = request.store / "work" / key.digest
    outputs = {p.name: work / "outputs" / p.name for p in request.stage.outputs}
    shutil.rmtree(work / "outputs", ignore_errors=True)
    home = request.run_folder / "stages" / request.task if request.run_folder else work
    resumed = (work / "scratch").is_dir()
    if not resumed:
        (home / CURVES).unlink(missing_ok=True)
    journal = Journal(home, scratch=work / "scratch", label=request.task)
    (work / "outputs").mkdir(parents=True, exist_ok=True)
    inputs = given_inputs(request, manifests)
    report = request.stage.run(request.config, **inputs, **outputs, journal=journal)
    seconds = time.time() - started
    about = {
        "stage": request.stage.name,
        "task": request.task,
        "key": key.digest,
        "config": request.config.model_dump(mode="json"),
        "seed": request.config.seed,
        "inputs": {
            port if len(found) == 1 else f"{port}[{i}]": m.digest
            for port, found in manifests.items()
            for i, m in enumerate(found)
        },
        "git": provenance.commit(),
        "started": started,
        "seconds": seconds,
        "report": report.model_dump(mode="json"),
    }
    for parameter in request.stage.outputs:
        kind = parameter.port.kind
        if kind == ANY:
            kind = next(iter(manifests.values()))[0].record
        seal(outputs[parameter.name], kind, parameter.name, about, journal.curves)
    write_json(work / "outputs" / RECORD, about)
    discard(entry)
    rename(work / "outputs", entry)


def seal(folder: Path, kind: str, port: str, about: Mapping[str, Any], curves: Path) -> Manifest:
    """Write the manifest of a finished folder, last and atomically, over what is on disk."""
    if not folder.is_dir():
        raise RuntimeError(f"stage {about['stage']} did not write its output `{port}`")
    files = content_files(folder)
    rows = sum(1 for _ in read_lines(folder / ROWS)) if ROWS in files else None
    if curves.is_file():
        shutil.copyfile(curves, folder / CURVES)
    settle(folder)
    manifest = Manifest(
        record=kind, rows=rows, digest=digest_of(files), files=files, port=port, **about
    )
    write_manifest(folder, manifest)
    return manifest


def record_path(run_folder: Path, task: str) -> Path:
    """Where a run keeps the record of a task."""
    return run_folder / "stages" / f"{task}.json"


def previous_record(request: Request) -> dict[str, Any] | None:
    """The record that an earlier run of the task left in the run folder."""
    if not request.run_folder:
        return None
    path = record_path(request.run_folder, request.task)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


def why(stale: str, before: Mapping[str, Any] | None, key: Key) -> str:
    """Say what made a stage run: the parts of the key that changed since the last record."""
    if stale != "not in the store":
        return stale
    if before is None:
        return "first run"
    old, new = before.get("key_parts", {}), key.parts
    changes = [
        f"{part} `{name}`"
        for part in ("config", "inputs", "exposure", "code", "packages")
        for name in sorted({*old.get(part, {}), *new.get(part, {})})
        if old.get(part, {}).get(name) != new.get(part, {}).get(name)
    ]
    return "changed: " + ", ".join(changes) if changes else "the store no longer holds it"


def keep_record(request: Request, record: Mapping[str, Any], entry: Path) -> None:
    """Write the task's record and curves into the run folder."""
    assert request.run_folder is not None
    first = next((entry / p.name / CURVES for p in request.stage.outputs), None)
    if first and first.is_file():
        home = request.run_folder / "stages" / request.task
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(first, home / CURVES)
    # Last: where a record is, tracking takes the curves for whole.
    write_json(record_path(request.run_folder, request.task), record)
    print(summary_line(record), file=sys.stderr, flush=True)


def summary_line(record: Mapping[str, Any]) -> str:
    """One line on what happened to a task."""
    seconds = record["ended"] - record["started"]
    return f"{record['task']}: {'cached' if record['cached'] else 'done'} in {seconds:.1f}s"
