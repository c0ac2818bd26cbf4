"""One suite measured: samples in chunks, then the mean over items with its interval."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.benchmark.metrics import scores_of
from posttrain.benchmark.scorers import Scorer
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
            **{
                f"{s.metric}{ending}": value
                for s in self.table
                if s.metric in {metric.name for metric in self.suite.metrics}
                for ending, value in (("", s.value), ("_low", s.low), ("_high", s.high))
            },
            "empty": sum(not row.response.strip() for row in rows) / len(rows),
            "unscored": sum(measured(row, "unscored") for row in rows) / len(rows),
            "truncated": sum(row.truncated for row in rows) / len(rows),
            "tokens": sum(row.tokens for row in rows) / len(rows),
            "seconds": self.seconds,
        }

    def bands(self) -> dict[str, dict[str, float]]:
        """For the report: the score by difficulty."""
        return self._slices("difficulty_")

    def categories(self) -> dict[str, dict[str, float]]:
        """For the report: the score by category, with the suite's other metrics."""
        found = self._slices("category_")
        for score in self.table:
            metric, _, category = score.metric.partition("/category_")
            if category and metric != self.suite.metric:
                found[category] |= {metric: score.value}
        return found

    def _slices(self, kind: str) -> dict[str, dict[str, float]]:
        prefix = f"{self.suite.metric}/{kind}"
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


def measured(row: Sample, name: str) -> float:
    """A measure of a row, 0 where it has none of that name."""
    return (row.measures or {}).get(name, 0.0)


def measure(
    engine: Engine,
    suite: Suite,
    items: Sequence[Item],
    draws: Mapping[str, Sampling],
    chunk: int,
    journal: Journal,
    score: Scorer,
) -> Result:
    """Score a suite's items, once for each draw; `chunk` items between two checkpoints."""
    started = time.monotonic()
    rows: dict[str, list[Sample]] = {}
    for draw, sampling in draws.items():
        rows[draw] = []

        def scored(part: Sequence[Item], place: int, how: Sampling = sampling) -> list[Sample]:
            seed = seed_of(how.seed, suite.name, place)
            found = score(engine, suite.name, part, how._replace(seed=seed))
            return stamped(found, part, sensitive=suite.sensitive)

        for done in in_chunks(items, chunk, journal.scratch, f"{suite.name}-{draw}", scored):
            rows[draw] += done
            ids = len({row.item_id for row in rows[draw]})
            journal.progress(ids, len(items), f"{suite.name} item")
            journal.pause()
    return Result(suite, rows, table_of(suite, rows), time.monotonic() - started)


def stamped(rows: Sequence[Sample], items: Sequence[Item], *, sensitive: bool) -> list[Sample]:
    """Rows with the category of their item, and marked where no report may show them."""
    categories = {item.prompt.id: item.category or None for item in items}
    return [
        row.model_copy(update={"category": categories[row.item_id], "sensitive": sensitive or None})
        for row in rows
    ]


def table_of(suite: Suite, rows: Mapping[str, Sequence[Sample]]) -> list[Score]:
    """The suite's scores: its metric, its other ones, then by difficulty and category."""
    main = rows[MAIN]
    table = [score_of(main, suite.name, suite.metric)]
    if GREEDY in rows:
        table.append(score_of(rows[GREEDY], suite.name, GREEDY))
    table += scores_of(main, suite.name, suite.metrics)
    for band in sorted({row.difficulty for row in main if row.difficulty is not None}):
        inside = [row for row in main if row.difficulty == band]
        table.append(score_of(inside, suite.name, f"{suite.metric}/difficulty_{band}"))
    for category in sorted({row.category for row in main if row.category}):
        inside = [row for row in main if row.category == category]
        table.append(score_of(inside, suite.name, f"{suite.metric}/category_{category}"))
        table += scores_of(inside, suite.name, suite.metrics, category)
    return table


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
