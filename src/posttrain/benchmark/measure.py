"""One suite measured: samples in chunks, then the mean over items with its interval."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.benchmark.scorers import SCORERS
from posttrain.benchmark.suites import Item, Suite
from posttrain.engines import Engine, Sampling
from posttrain.journal import Journal
from posttrain.records import Sample, Score
from posttrain.samples import in_chunks, seed_of
from posttrain.statistics import clustered_share

MAIN = "main"
GREEDY = "greedy"


@dataclass(frozen=True)
class Result:
    """The samples of a suite by draw, the scores made of them, and the seconds they took."""

    suite: Suite
    rows: Mapping[str, list[Sample]]
    table: list[Score]
    seconds: float

    def numbers(self) -> dict[str, float]:
        """For the report: score and interval, and what it cost."""
        rows = self.rows[MAIN]
        score = self.table[0]
        return {
            "n": score.n,
            "samples": len(rows) // score.n,
            score.metric: score.value,
            "low": score.low,
            "high": score.high,
            "stderr": score.stderr,
            **{s.metric: s.value for s in self.table if s.metric == GREEDY},
            "truncated": sum(row.truncated for row in rows) / len(rows),
            "tokens": sum(row.tokens for row in rows) / len(rows),
            "seconds": self.seconds,
        }

    def bands(self) -> dict[str, dict[str, float]]:
        """For the report: the score by difficulty."""
        prefix = f"{self.suite.metric}/difficulty_"
        return {
            s.metric.removeprefix(prefix): {
                "n": s.n,
                "value": s.value,
                "low": s.low,
                "high": s.high,
            }
            for s in self.table
            if s.metric.startswith(prefix)
        }


def measure(
    engine: Engine,
    suite: Suite,
    items: Sequence[Item],
    draws: Mapping[str, Sampling],
    chunk: int,
    journal: Journal,
) -> Result:
    """Score a suite's items, once for each draw; `chunk` items between two checkpoints."""
    started = time.monotonic()
    score = SCORERS[suite.scorer]
    rows: dict[str, list[Sample]] = {}
    for draw, sampling in draws.items():
        rows[draw] = []

        def scored(part: Sequence[Item], place: int, how: Sampling = sampling) -> list[Sample]:
            seed = seed_of(how.seed, suite.name, place)
            return score(engine, suite.name, part, how._replace(seed=seed))

        for done in in_chunks(items, chunk, journal.scratch, f"{suite.name}-{draw}", scored):
            rows[draw] += done
            ids = len({row.item_id for row in rows[draw]})
            journal.progress(ids, len(items), f"{suite.name} item")
    table = [score_of(rows[MAIN], suite.name, suite.metric)]
    if GREEDY in rows:
        table.append(score_of(rows[GREEDY], suite.name, GREEDY))
    for band in sorted({row.difficulty for row in rows[MAIN] if row.difficulty is not None}):
        inside = [row for row in rows[MAIN] if row.difficulty == band]
        table.append(score_of(inside, suite.name, f"{suite.metric}/difficulty_{band}"))
    return Result(suite, rows, table, time.monotonic() - started)


def score_of(rows: Sequence[Sample], suite: str, metric: str) -> Score:
    """Mean correctness; items are the unit of the interval."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        shares.setdefault(row.item_id, []).append(row.correct)
    found = clustered_share(np.array([sum(of) / len(of) for of in shares.values()]))
    return Score(
        suite=suite,
        metric=metric,
        value=found.value,
        n=len(shares),
        stderr=found.stderr,
        low=found.low,
        high=found.high,
    )
