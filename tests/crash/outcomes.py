"""What came of the points of the crash matrix, as numbers and as a table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from posttrain.artifacts import write_json


class Point(NamedTuple):
    """A task and what befalls it; `share` of the room it needs, on a mounted file system."""

    task: str
    kind: str
    call: str = ""
    moment: str = ""
    at: int = 0
    share: float = 0.0


class Outcome(NamedTuple):
    """What came of a point. `verdict`: equal (killed, and the same digests when run again), typed
    (a typed error, then the same), done (it ended well all the same), or what is wrong: lost,
    false_success, untyped, late; `missed` where the fault did not come about."""

    point: Point
    verdict: str
    code: int
    seconds: float
    why: str = ""


WRONG = ("lost", "false_success", "untyped", "late")


def table(outcomes: Sequence[Outcome]) -> str:
    """Task by kind of fault: how many points, and what is wrong."""
    kinds = list(dict.fromkeys(outcome.point.kind for outcome in outcomes))
    rows = [["stage", *kinds, "points"], ["---"] * (len(kinds) + 2)]
    for name in dict.fromkeys(outcome.point.task for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.point.task == name]
        cells = [cell([o for o in own if o.point.kind == kind]) for kind in kinds]
        rows.append([name, *cells, cell(own)])
    cells = [cell([o for o in outcomes if o.point.kind == kind]) for kind in kinds]
    rows.append(["all", *cells, cell(outcomes)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def cell(outcomes: Sequence[Outcome]) -> str:
    """How many points, and after a `!` those that went wrong."""
    counted = [o for o in outcomes if o.verdict != "missed"]
    wrong = Counter(o.verdict for o in counted if o.verdict in WRONG)
    told = "".join(f" !{count} {verdict}" for verdict, count in wrong.items())
    return f"{len(counted)}{told}" if counted else ""


def write(outcomes: Sequence[Outcome], out: Path, seconds: float) -> dict[str, int]:
    """Write `matrix.json` and `matrix.md`; returns the counts."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    counts = {"points": len(outcomes) - verdicts.pop("missed", 0)}
    counts |= {name: verdicts[name] for name in ("equal", "typed", "done", *WRONG)}
    told = [{**o._asdict(), "point": o.point._asdict()} for o in outcomes]
    write_json(out / "matrix.json", {"counts": counts, "seconds": seconds, "points": told})
    summed = ", ".join(f"{count} {name}" for name, count in counts.items())
    text = f"# Crash matrix\n\n{summed}; {seconds:.0f} s.\n\n{table(outcomes)}"
    (out / "matrix.md").write_text(text, encoding="utf-8")
    print(text)
    return counts
