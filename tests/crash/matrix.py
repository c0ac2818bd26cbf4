"""The crash matrix: `python -m tests.crash.matrix --out runs/crash` kills real stage processes.

Each point is a task, a fault and a moment. The process that suffers it is forked from this one,
which has imported everything, and runs the real command line. Afterwards nothing that verifies may
differ from what an undisturbed run writes, and the same command must end with the same digests.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash.faults import CALLS, CGROUPS, Fault
from tests.crash.outcomes import WRONG, Outcome, Point, write
from tests.crash.stages import GRACE_SECONDS, TASKS, Ended, run

from posttrain.artifacts import ANY, CURVES, In, verify
from posttrain.errors import DataError
from posttrain.journal import read_curves

KILLED = ("kill", "stop", "oom", "power", "power_names")
TYPED = (2, 3, 75)
MOMENTS = ("first", "middle", "last")
PLANS: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
    ("kill", CALLS, MOMENTS),
    ("power", ("rename", "link", "progress"), MOMENTS),
    ("power_names", ("rename", "fsync"), MOMENTS),
    ("enospc", ("write", "fsync", "rename"), MOMENTS),
    ("erofs", ("write", "rename"), ("middle", "last")),
    ("term", ("progress", "forward", "step", "fsync"), ("first", "middle")),
    ("stop", ("rename", "forward"), ("middle",)),
    ("freeze", ("write", "forward"), ("middle",)),
    ("oom", ("write", "forward"), ("middle",)),
)
"""Which faults befall a task at which calls. `stop` is SIGSTOP and then SIGKILL, `freeze` SIGSTOP
and then SIGCONT; `power` loses what no fsync has put on disk."""

MOUNTS = (("full", 0.3), ("full", 0.7), ("readonly", 0.0))
"""Real file systems: one with room for a share of what the task writes, and a read-only one."""


class Reference(NamedTuple):
    """An undisturbed run: digests and curves by port, calls, and bytes on disk."""

    digests: dict[str, str]
    curves: dict[str, dict[tuple[str, int], float]]
    counts: dict[str, int]
    size: int


def import_everything() -> None:
    """What the tasks import, so that a fork has it already."""
    import datasets
    import peft
    import trl

    import posttrain.cli
    import posttrain.curate.concluding
    import posttrain.engines.transformers
    import posttrain.hf_trainer
    import posttrain.report.page
    import posttrain.reward_model.trainer
    import posttrain.rl.parts
    from posttrain.stages import STAGES, load_stage

    assert all((datasets, peft, trl, posttrain))
    for stage in STAGES:
        load_stage(stage)


def read(home: Path, name: str) -> Iterator[tuple[str, str, dict[tuple[str, int], float]]]:
    """Port, digest and curves of each output that verifies; durations are not compared."""
    for port in TASKS[name].outputs:
        folder = home / "out" / port
        with contextlib.suppress(DataError):
            digest = verify(folder, In(ANY)).digest
            points = read_curves(folder / CURVES)
            curves = {
                (p.name, p.step): p.value
                for p in points
                if "time/" not in p.name and "seconds" not in p.name
            }
            yield port, digest, curves


def reference(name: str, root: Path) -> Reference:
    """Run a task undisturbed."""
    home = root / "reference" / name
    ended = run(name, home, root / "reference")
    if ended.code:
        raise SystemExit(f"{name} fails undisturbed:\n{ended.told[-3000:]}")
    found = [*read(home, name)]
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    return Reference(
        {port: digest for port, digest, _ in found},
        {port: curves for port, _, curves in found},
        ended.counts,
        size,
    )


def points(references: dict[str, Reference], mounts: bool, groups: bool) -> list[Point]:
    """Every point of the matrix; no call of a task is hit twice by the same fault."""
    found: list[Point] = []
    for kind, calls, moments in PLANS:
        for call in calls if groups or kind != "oom" else ():
            for name, known in references.items():
                count = known.counts.get(call, 0)
                places = {"first": 1, "middle": (count + 1) // 2, "last": count}
                chosen = {places[moment]: moment for moment in reversed(moments) if count}
                found += [Point(name, kind, call, chosen[at], at) for at in sorted(chosen)]
    if mounts:
        found += [
            Point(name, kind, moment=f"{share:.0%}" if share else "", share=share)
            for kind, share in MOUNTS
            for name in references
        ]
    return found


def suffered(point: Point, root: Path, known: Reference) -> Outcome:
    """Run the task with the fault, look at what it left, and run it again."""
    home, inputs = root / "point" / "home", root / "reference"
    shutil.rmtree(root / "point", ignore_errors=True)
    home.mkdir(parents=True)
    with mounted(home, point, known) as mend:
        ended = run(point.task, home, inputs, Fault(point.kind, point.call, point.at))
        wrong = judged(point, ended, home, known)
        mend()
        again = run(point.task, home, inputs)
        found = {port: (digest, curves) for port, digest, curves in read(home, point.task)}
        if not wrong and (again.code or {p: d for p, (d, _) in found.items()} != known.digests):
            wrong = ("lost", f"run again: exit {again.code}\n{again.told[-2000:]}")
        elif not wrong and {p: c for p, (_, c) in found.items()} != known.curves:
            wrong = ("lost", f"run again: other curves: {differing(found, known)}")
    verdict = "equal" if ended.code < 0 else "typed" if ended.code else "done"
    if verdict == "done" and point.kind in KILLED:
        verdict = "missed"
    why = f"exit {ended.code}\n{ended.told[-2000:]}\n{wrong[1]}" if wrong else ""
    return Outcome(point, wrong[0] if wrong else verdict, ended.code, ended.seconds, why)


def differing(
    found: Mapping[str, tuple[str, dict[tuple[str, int], float]]], known: Reference
) -> list[str]:
    """The points of the curves that are others than undisturbed, or on one side alone."""
    return [
        f"{name} at {step}: {found[port][1].get((name, step))}, not {curves.get((name, step))}"
        for port, curves in known.curves.items()
        for name, step in sorted({*curves, *found[port][1]})
        if found[port][1].get((name, step)) != curves.get((name, step))
    ]


def judged(point: Point, ended: Ended, home: Path, known: Reference) -> tuple[str, str] | None:
    """What is wrong with how a process ended and with what it left."""
    left = {port: digest for port, digest, _ in read(home, point.task)}
    if any(known.digests[port] != digest for port, digest in left.items()):
        return "false_success", f"what it left verifies, and differs: {left}"
    if ended.code == 0 and left != known.digests:
        return "false_success", f"exit code 0, and its outputs are {left}"
    if ended.code > 0 and (ended.code not in TYPED or "mend:" not in ended.told):
        return "untyped", "no typed error"
    if ended.code < 0 and point.kind not in KILLED:
        return "untyped", "killed by itself"
    if point.kind == "term" and ended.seconds > GRACE_SECONDS + 5:
        return "late", f"it took {ended.seconds:.0f} s"
    return None


@contextlib.contextmanager
def mounted(home: Path, point: Point, known: Reference) -> Iterator[Callable[[], object]]:
    """A file system of its own where the point wants one; yields what mends it."""
    if point.kind not in ("full", "readonly"):
        yield lambda: None
        return

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options, str(home)], check=True)

    mount("-t", "tmpfs", "-o", f"size={int(known.size * point.share) or '1g'}", "tmpfs")
    try:
        for folder in ("out", "store", "run"):
            (home / folder).mkdir()
        if point.kind == "readonly":
            mount("-o", "remount,ro")
        yield lambda: mount("-o", "remount,rw,size=1g")
    finally:
        subprocess.run(["umount", str(home)], check=True)


def can_mount(root: Path) -> bool:
    """Whether this process may mount a file system."""
    place = root / "mount"
    place.mkdir(parents=True)
    tried = ["mount", "-t", "tmpfs", "tmpfs", str(place)]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(place)], check=True)
    return True


def can_group() -> bool:
    """Whether this process may limit the memory of another (control groups, version 1)."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix="crash-", dir=CGROUPS))
    except OSError:
        return False
    return True


def main() -> int:
    """Run the matrix; 1 when a point was lost or taken for success, or failed without a type."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/crash"))
    parser.add_argument("--every", type=int, default=1, help="take one point of so many")
    parser.add_argument("--tasks", nargs="*", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--kinds", nargs="*", default=None)
    given = parser.parse_args()
    began = time.monotonic()
    import_everything()
    root = Path(tempfile.mkdtemp(prefix="crash-"))
    try:
        references = {name: reference(name, root) for name in TASKS}
        print(f"undisturbed after {time.monotonic() - began:.0f} s", file=sys.stderr)
        chosen = points(references, can_mount(root), can_group())[:: given.every]
        outcomes = []
        for point in chosen:
            if point.task not in given.tasks or point.kind not in (given.kinds or [point.kind]):
                continue
            outcomes.append(outcome := suffered(point, root, references[point.task]))
            where = " ".join(map(str, point[:5]))
            print(f"{outcome.verdict}: {where} {outcome.why}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    counts = write(outcomes, given.out, time.monotonic() - began)
    return int(any(counts[name] for name in WRONG))


if __name__ == "__main__":
    sys.exit(main())
