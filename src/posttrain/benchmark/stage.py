"""policy (held-out evaluation prompts and a judge, both optional) -> scores.

Puts a policy through suites and writes every sample and, per suite, its metrics with 95% intervals
over items. Left out on purpose: few-shot prompts and answer repair; a policy is scored as it is
used, through its own chat template.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator

from posttrain.artifacts import (
    JUDGE,
    POLICY,
    SCORES,
    In,
    Out,
    file_digest,
    write_json,
    write_rows,
)
from posttrain.benchmark.choosing import chosen, draw_of, origin_of, read_items
from posttrain.benchmark.suites import Item, Place
from posttrain.benchmark.suites.harness import Harness
from posttrain.benchmark.suites.sources import Upstream
from posttrain.benchmark.suites.suite import DAY, items_digest
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import Fault, PosttrainError
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Prompt, content_id

if TYPE_CHECKING:
    from posttrain.benchmark.measure import Result

ITEMS = "items.json"
AUDIT = "audit"
SCORE_ROWS = "scores.jsonl"
GREEDY_ROWS = "greedy.jsonl"


class BenchmarkConfig(StageConfig):
    """Which suites, and how the policy answers them."""

    suites: list[Annotated[Plugin, Family("posttrain.benchmark.suites:CHOICES")]] = Field(
        [Plugin(name="arithmetic"), Plugin(name="knights_knaves"), Plugin(name="countdown")],
        min_length=1,
        description="suites, in this order; a part of one: `{name: gsm8k, limit: 200}`",
    )
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="where tokens come from"
    )
    samples: int = Field(1, ge=1, le=1024, description="samples per item; pass@1 is their mean")
    temperature: float = Field(1.0, ge=0, description="of sampling; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus of sampling; 1 keeps all")
    max_new_tokens: int = Field(256, ge=1, description="longest response, in tokens")
    greedy: bool = Field(False, description="also score one greedy answer per item")
    chunk: int = Field(256, ge=1, description="items between two checkpoints")
    data_folder: str = Field("", description="public data files; empty: ask the hub")
    data_cutoff: str = Field(
        "", pattern=f"{DAY}|^$", description="newest training data; older releases are refused"
    )
    second_engine: Annotated[Plugin | None, Family("posttrain.engines:ENGINES")] = Field(
        None, description="repeat a part of each suite with this engine, and compare"
    )
    agreement_items: int = Field(32, ge=1, description="items that the second engine repeats")
    agreement_nats: float = Field(
        0.05, gt=0, description="mean gap of log-probs a token between engines (assumed)"
    )
    audit: str = Field("", description="JSON lines of `Audited`: which labels are wrong")
    audit_scores: list[str] = Field([], description="scores folders of other policies to rank")

    @model_validator(mode="after")
    def _one_greedy_sample(self) -> Self:
        if self.temperature == 0 and self.samples > 1:
            raise ValueError("at temperature 0 all samples are the same: set samples to 1")
        return self


class BenchmarkReport(Report):
    """Per suite: items `n`, `samples` of each, the score under its metric's name with `low`,
    `high`, `stderr`, its other metrics, the shares of truncated, empty and unscored samples, mean
    tokens, seconds; then by difficulty and category, what the second engine says (`disagreements`
    tells why), an audit's effect, the items' `origins`, and what a judge that writes was asked."""

    suites: dict[str, dict[str, float]]
    by_difficulty: dict[str, dict[str, dict[str, float]]]
    by_category: dict[str, dict[str, dict[str, float]]]
    agreement: dict[str, dict[str, float]]
    disagreements: dict[str, str]
    audit: dict[str, dict[str, float]]
    origins: dict[str, str]
    judge_costs: dict[str, float]
    temperature: float
    template: str
    engine: str
    seed: int


def run(
    config: BenchmarkConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    evaluation: Annotated[Path | None, In(Prompt)] = None,
    judge: Annotated[Path | None, In(JUDGE)] = None,
    scores: Annotated[Path, Out(SCORES)],
    journal: Journal,
) -> BenchmarkReport:
    suites = chosen(config.suites, config.data_cutoff)
    items = read_items(suites, place := Place(evaluation, config.data_folder))

    from posttrain.benchmark.agreement import compared
    from posttrain.benchmark.audit import audits, read_audit
    from posttrain.benchmark.measure import GREEDY, MAIN, Result, measure
    from posttrain.benchmark.scorers import OWN_WAY, scorers_of
    from posttrain.engines import ENGINES
    from posttrain.policies import load_policy

    make_engine = build(ENGINES, config.engine, "benchmark.engine")
    other = config.second_engine
    make_second = build(ENGINES, other, "benchmark.second_engine") if other else None
    verdicts = read_audit(config.audit, suites) if config.audit else {}
    scorers, spending = scorers_of(suites, judge)
    engine = make_engine(loaded := load_policy(policy))
    results: list[Result] = []
    for step, suite in enumerate(suites):
        draws = {MAIN: draw_of(config, suite)}
        if config.greedy and suite.scorer not in OWN_WAY:
            draws[GREEDY] = draws[MAIN]._replace(samples=1, temperature=0.0)
        scorer = scorers[suite.name]
        result = measure(engine, suite, items[suite.name], draws, config.chunk, journal, scorer)
        journal.log(step, **{f"{s.suite}/{s.metric}": s.value for s in result.table})
        results.append(result)
    write_results(scores, results, items, config)
    how = {suite.name: draw_of(config, suite) for suite in suites}
    n, nats = config.agreement_items, config.agreement_nats
    agreed = compared(engine, make_second(loaded), items, how, n, nats) if make_second else {}
    return BenchmarkReport(
        suites={result.suite.name: result.numbers() for result in results},
        by_difficulty={result.suite.name: result.bands() for result in results},
        by_category={result.suite.name: result.categories() for result in results},
        agreement={name: found.numbers() for name, found in agreed.items()},
        disagreements={name: found.why for name, found in agreed.items() if found.why},
        audit=audits(results, items, verdicts, config.audit_scores),
        origins={suite.name: origin_of(suite, place) for suite in suites},
        judge_costs=spending(),
        temperature=config.temperature,
        template=content_id(str(loaded.tokenizer.chat_template)),
        engine=config.engine.name,
        seed=config.seed,
    )


def write_results(
    scores: Path,
    results: Sequence["Result"],
    items: Mapping[str, Sequence[Item]],
    config: BenchmarkConfig,
) -> None:
    """Write the rows, the scores made of them, and what the items were."""
    from posttrain.benchmark.measure import GREEDY, MAIN

    write_rows(scores, (row for result in results for row in result.rows[MAIN]))
    if config.greedy:
        write_rows(scores, (row for r in results for row in r.rows.get(GREEDY, ())), GREEDY_ROWS)
    write_rows(scores, (score for result in results for score in result.table), SCORE_ROWS)
    digests = {name: items_digest(found) for name, found in items.items()}
    if config.audit:
        digests[AUDIT] = file_digest(Path(config.audit))
    write_json(scores / ITEMS, digests)


def preflight(config: BenchmarkConfig) -> Iterator[Fault]:
    """Suites whose items cannot be had, the evaluation port's apart (it is not there yet)."""
    try:
        suites = chosen(config.suites, config.data_cutoff)
        outside = [suite for suite in suites if isinstance(suite.source, Upstream | Harness)]
        read_items(outside, Place(None, config.data_folder), patient=False)
        if config.audit:
            from posttrain.benchmark.audit import read_audit

            read_audit(config.audit, suites)
    except PosttrainError as error:
        yield from error.faults


def still_holds(outputs: Mapping[str, Path], config: BenchmarkConfig) -> str | None:
    """Why stored scores no longer hold: items or audit are others now. Else None."""
    stored = json.loads((outputs["scores"] / ITEMS).read_text(encoding="utf-8"))
    place = Place(None, config.data_folder)
    for suite in chosen(config.suites, config.data_cutoff):
        local = isinstance(suite.source, Upstream | Harness) and suite.source.local(place)
        if local and items_digest(suite.items(place)) != stored[suite.name]:
            return f"the items of {suite.name} in the data folder have changed"
    if Path(config.audit).is_file() and file_digest(Path(config.audit)) != stored.get(AUDIT):
        return f"the audit {config.audit} has changed"
    return None
