"""Where a chunk's samples come from, drawn or recorded, and what the judge says of them.

One boundary for bad answers: an answer that is empty or huge, a score that is no number, a judge
that raises or is away become counts, never an error. What a chunk cost and what went wrong lies
beside its samples in `scratch`, so that a killed run still tells all of it.
"""

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posttrain import interruption
from posttrain.artifacts import read_rows, write_json
from posttrain.engines import Completion, Engine, Request, Sampling, Until
from posttrain.errors import DataError, Fault
from posttrain.records import Prompt, Sample
from posttrain.reward_model.costs import costs_of
from posttrain.rewards.verifiers import verifier_of
from posttrain.samples import generated, seed_of

if TYPE_CHECKING:
    from posttrain.reward_model.protocol import Judge

log = logging.getLogger(__name__)

SUITE = "best_of_n"
PATIENCE = 8
"""Requests that fail in a row before a judge counts as away until the next chunk (assumed)."""

Fill = Callable[[Sequence[Any], int], list[Sample]]


def read_prompts(folder: Path, limit: int | None) -> list[Prompt]:
    """The first `limit` prompts; DataError when there are none or one names no verifier."""
    prompts = list(read_rows(folder, Prompt))[:limit]
    if not prompts:
        raise DataError(
            Fault("no prompts", str(folder), "the file is empty", "give evaluation prompts")
        )
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        verifier_of(task)
    return prompts


class Toll(NamedTuple):
    """What the samples cost: seconds of generation, 0 if none, and counts of what went wrong."""

    seconds: float
    counts: Counter[str]


class Stopwatch:
    """An engine that adds up the `seconds` that generation takes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds = 0.0

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        began = time.perf_counter()
        found = self.engine.generate(prompts, sampling)
        self.seconds += time.perf_counter() - began
        return found

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        return self.engine.resume(requests, sampling, until)

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        return self.engine.logps(prompts, responses)


class Source(NamedTuple):
    """Items, each of which becomes `n` samples; `fill(items, place)` makes those of a chunk."""

    items: Sequence[Any]
    n: int
    fill: Fill
    clock: Stopwatch | None = None


def drawing(engine: Engine, sampling: Sampling, prompts: Sequence[Prompt]) -> Source:
    """Samples of the prompts, drawn and verified."""
    clock = Stopwatch(engine)

    def fill(chunk: Sequence[Prompt], place: int) -> list[Sample]:
        seed = seed_of(sampling.seed, SUITE, place)
        return generated(clock, SUITE, chunk, sampling._replace(seed=seed))

    return Source(prompts, sampling.samples, fill, clock)


def recording(rows: Iterable[Sample], n_max: int, limit: int | None) -> Source:
    """Recorded samples by item, in the order of the record: the first `n_max` of each.

    Where no item has so many, all have as many as there are. DataError when some have fewer than
    others, for then no one N is that of every item, and when there are none.
    """
    found: dict[tuple[str, str], list[Sample]] = {}
    for row in rows:
        found.setdefault((row.suite, row.item_id), []).append(row)
    groups = list(found.values())[:limit]
    fewest, most = (of(map(len, groups), default=0) for of in (min, max))
    if fewest < min(n_max, most) or not groups:
        short = next((group[0].item_id for group in groups if len(group) == fewest), "none")
        raise DataError(
            Fault(
                "not as many recorded candidates of every item" if groups else "no candidates",
                f"item {short}",
                f"it has {fewest}, another {most}; n_max is {n_max}",
                f"set n_max to at most {max(fewest, 1)}, or leave the item out",
            )
        )
    n = min(n_max, fewest)

    def fill(chunk: Sequence[Sequence[Sample]], place: int) -> list[Sample]:
        return [row for group in chunk for row in group[:n]]

    return Source(groups, n, fill)


def told(
    source: Source,
    judge: "Judge | None",
    longest: int,
    scratch: Path,
    items: Sequence[Any],
    place: int,
) -> list[Sample]:
    """Fill a chunk, have it judged, and leave its toll in `scratch`."""
    began = source.clock.seconds if source.clock else 0.0
    rows, counts = cleaned(source.fill(items, place))
    if judge is not None:
        before = Counter(costs_of(judge))
        rows, more = judged(judge, rows, longest)
        counts.update(more)
        spent = Counter(costs_of(judge)) - before
        counts.update({f"judge_{name}": count for name, count in spent.items()})
    seconds = source.clock.seconds - began if source.clock else 0.0
    write_json(scratch / f"toll-{place:06}.json", {"seconds": seconds, "counts": counts})
    return rows


def toll_of(scratch: Path, rows: Sequence[Sample], longest: int) -> Toll:
    """What all chunks cost, and the counts that the rows themselves tell."""
    counts = Counter(
        empty=sum(not row.response.strip() for row in rows),
        huge=sum(len(row.response) > longest for row in rows),
        no_prediction=sum(row.prediction is None for row in rows),
        truncated=sum(row.truncated for row in rows),
        judge_failed=0,
        judge_not_finite=0,
    )
    seconds = 0.0
    for path in sorted(scratch.glob("toll-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        seconds += found["seconds"]
        counts.update(found["counts"])
    return Toll(seconds, counts)


def cleaned(rows: Sequence[Sample]) -> tuple[list[Sample], Counter[str]]:
    """Rows whose numbers are finite or absent: recorded ones may say NaN. No verdict is wrong."""
    counts: Counter[str] = Counter()
    found = []
    for row in rows:
        update: dict[str, float | None] = {}
        if row.judge is not None and not math.isfinite(row.judge):
            update["judge"] = None
            counts["judge_not_finite"] += 1
        if row.logp is not None and not math.isfinite(row.logp):
            update["logp"] = None
            counts["logp_not_finite"] += 1
        if not 0 <= row.correct <= 1:
            update["correct"] = 0.0
            counts["no_verdict"] += 1
        found.append(row.model_copy(update=update) if update else row)
    return found, counts


def judged(
    judge: "Judge", rows: Sequence[Sample], longest: int
) -> tuple[list[Sample], Counter[str]]:
    """The rows with the judge's scores instead of any they had, None where it gave none.

    Answers of more than `longest` characters are not shown to it.
    """
    shown = [i for i, row in enumerate(rows) if len(row.response) <= longest]
    scores = asked(judge, [rows[i] for i in shown])
    given = dict(zip(shown, scores, strict=True))
    counts = Counter(
        judge_failed=sum(score is None for score in scores),
        judge_not_finite=sum(score is not None and not math.isfinite(score) for score in scores),
    )
    found = []
    for i, row in enumerate(rows):
        score = given.get(i)
        kept = round(score, 6) if score is not None and math.isfinite(score) else None
        found.append(row.model_copy(update={"judge": kept}))
    return found, counts


def asked(judge: "Judge", rows: Sequence[Sample]) -> list[float | None]:
    """A score a row, None where the judge failed on it.

    All together first; if that fails each row alone, until PATIENCE rows in a row have failed.
    """
    together = attempt(judge, rows)
    if together is not None:
        return [*together]
    scores: list[float | None] = [None] * len(rows)
    failed = 0
    for i, row in enumerate(rows):
        if failed == PATIENCE:
            log.warning("the judge counts as away for %d samples", len(rows) - i)
            break
        alone = attempt(judge, [row])
        failed = failed + 1 if alone is None else 0
        scores[i] = alone[0] if alone else None
    return scores


def attempt(judge: "Judge", rows: Sequence[Sample]) -> list[float] | None:
    """The judge's scores; None when it raises or answers another number of rows."""
    try:
        scores = [
            float(score)
            for score in judge.score([row.prompt for row in rows], [row.response for row in rows])
        ]
    except Exception as error:  # whatever a judge may raise, its failure is counted
        if error is interruption.asked():
            raise
        log.warning("the judge failed: %s: %s", type(error).__name__, str(error)[:200])
        return None
    return scores if len(scores) == len(rows) else None
