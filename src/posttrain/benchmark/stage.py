"""policy (and held-out evaluation prompts) -> scores.

Puts a policy through suites and writes every sample and, per suite, the mean with a 95%
interval over items. Left out on purpose: few-shot prompts and answer repair; a policy is scored
as it is used, through its own chat template.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator

from posttrain.artifacts import POLICY, SCORES, In, Out, write_json, write_rows
from posttrain.benchmark.suites import CHOICES, Item, Place, Suite
from posttrain.benchmark.suites.sources import Upstream
from posttrain.benchmark.suites.suite import items_digest
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import ConfigError, Fault, PosttrainError
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Prompt, content_id

if TYPE_CHECKING:
    from posttrain.engines import Sampling

ITEMS = "items.json"
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

    @model_validator(mode="after")
    def _one_greedy_sample(self) -> Self:
        if self.temperature == 0 and self.samples > 1:
            raise ValueError("at temperature 0 all samples are the same: set samples to 1")
        return self


class BenchmarkReport(Report):
    """Per suite: items `n`, `samples` of each, the score under its metric's name with `low`,
    `high`, `stderr`, the share of truncated samples, mean tokens, seconds; and by difficulty."""

    suites: dict[str, dict[str, float]]
    by_difficulty: dict[str, dict[str, dict[str, float]]]
    temperature: float
    template: str
    engine: str


def run(
    config: BenchmarkConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    evaluation: Annotated[Path | None, In(Prompt)] = None,
    scores: Annotated[Path, Out(SCORES)],
    journal: Journal,
) -> BenchmarkReport:
    suites = chosen(config)
    items = read_items(suites, Place(evaluation, config.data_folder))

    from posttrain.benchmark.measure import GREEDY, MAIN, Result, measure
    from posttrain.engines import ENGINES
    from posttrain.policies import load_policy

    make_engine = build(ENGINES, config.engine, "benchmark.engine")
    loaded = load_policy(policy)
    engine = make_engine(loaded)
    results: list[Result] = []
    for step, suite in enumerate(suites):
        draws = {MAIN: draw_of(config, suite)}
        if config.greedy and suite.scorer != "multiple_choice":
            draws[GREEDY] = draws[MAIN]._replace(samples=1, temperature=0.0)
        result = measure(engine, suite, items[suite.name], draws, config.chunk, journal)
        journal.log(step, **{f"{s.suite}/{s.metric}": s.value for s in result.table})
        results.append(result)
    write_rows(scores, (row for result in results for row in result.rows[MAIN]))
    if config.greedy:
        greedy = (row for result in results for row in result.rows.get(GREEDY, ()))
        write_rows(scores, greedy, GREEDY_ROWS)
    write_rows(scores, (score for result in results for score in result.table), SCORE_ROWS)
    write_json(scores / ITEMS, {name: items_digest(found) for name, found in items.items()})
    return BenchmarkReport(
        suites={result.suite.name: result.numbers() for result in results},
        by_difficulty={result.suite.name: result.bands() for result in results},
        temperature=config.temperature,
        template=content_id(str(loaded.tokenizer.chat_template)),
        engine=config.engine.name,
    )


def draw_of(config: BenchmarkConfig, suite: Suite) -> "Sampling":
    """How the samples are drawn that a suite's score is the mean of."""
    from posttrain.engines import Sampling

    return Sampling(
        samples=suite.samples or config.samples,
        temperature=config.temperature,
        top_p=config.top_p,
        max_new_tokens=suite.max_new_tokens or config.max_new_tokens,
        seed=config.seed,
    )


def chosen(config: BenchmarkConfig) -> list[Suite]:
    """The suites with their options; raises ConfigError for one that is named twice."""
    suites = [build(CHOICES, plugin, "benchmark.suites")() for plugin in config.suites]
    names = [suite.name for suite in suites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            Fault(
                f"suite `{twice[0]}` is named twice",
                "benchmark.suites",
                "its scores would be mixed up",
                "name every suite once",
            )
        )
    return suites


def read_items(suites: Iterable[Suite], place: Place) -> dict[str, list[Item]]:
    """The items of each suite by its name; raises every fault at once."""
    items: dict[str, list[Item]] = {}
    errors: list[PosttrainError] = []
    for suite in suites:
        try:
            items[suite.name] = suite.items(place)
        except PosttrainError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(*(fault for error in errors for fault in error.faults))
    return items


def preflight(config: BenchmarkConfig) -> Iterator[Fault]:
    """Suites whose items cannot be had, the evaluation port's apart (it is not there yet)."""
    try:
        outside = [suite for suite in chosen(config) if isinstance(suite.source, Upstream)]
        read_items(outside, Place(None, config.data_folder))
    except PosttrainError as error:
        yield from error.faults


def still_holds(outputs: Mapping[str, Path], config: BenchmarkConfig) -> str | None:
    """Why stored scores no longer hold: the data folder's items are others now. Else None."""
    stored = json.loads((outputs["scores"] / ITEMS).read_text(encoding="utf-8"))
    place = Place(None, config.data_folder)
    for suite in chosen(config):
        local = isinstance(suite.source, Upstream) and suite.source.local(place)
        if local and items_digest(suite.items(place)) != stored[suite.name]:
            return f"the items of {suite.name} in the data folder have changed"
    return None
