"""policy and evaluation prompts, or recorded candidates; judge (optional) -> scores.

Draws `n_max` samples of every prompt once and reads off what every smaller N would give by each
selector: an oracle (pass@k), votes, votes that the judge weighs, its favourite, the likeliest.
Candidates that were recorded earlier are scored again without a policy. Left out on purpose:
search during decoding.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posttrain.artifacts import JUDGE, POLICY, SCORES, In, Out, read_rows, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import ConfigError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Prompt, Sample

if TYPE_CHECKING:
    from posttrain.best_of_n.curve import Curve
    from posttrain.best_of_n.drawing import Toll

SCORE_ROWS = "scores.jsonl"
FILES_READ = "recorded.sha256"


DEFAULT_SELECTORS = ("verifier", "majority", "judge", "weighted_majority", "self_certainty")


class BestOfNConfig(StageConfig):
    """How many samples, how they are drawn and chosen from, and how much the intervals cost."""

    n_max: int = Field(16, ge=1, le=256, description="samples per prompt; k goes up to it by 2x")
    selectors: list[Annotated[Plugin, Family("posttrain.best_of_n.selectors:SELECTORS")]] = Field(
        [Plugin(name=name) for name in DEFAULT_SELECTORS],
        min_length=1,
        description="how one of N is chosen; those that lack what they read are named and left out",
    )
    recorded: Annotated[Plugin | None, Family("posttrain.best_of_n.recorded:RECORDED")] = Field(
        None, description="score these candidates again instead of drawing"
    )
    temperature: float = Field(1.0, gt=0, description="of sampling")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus of sampling; 1 keeps all")
    max_new_tokens: int = Field(256, ge=1, description="longest response, in tokens")
    limit: int | None = Field(None, ge=1, description="prompts, the first so many; none: all")
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="where tokens come from"
    )
    allow_failed_judge: bool = Field(False, description="ask a judge whose panel failed, too")
    judge_characters: int = Field(
        32768, ge=1, description="longer answers are counted as huge, not judged (assumed)"
    )
    resamples: int = Field(2000, ge=100, description="bootstrap resamples of the items")
    chunk: int = Field(64, ge=1, description="prompts between two checkpoints")


class BestOfNReport(Report):
    """`curve` holds, for each k, the methods with `_low` and `_high` and their tokens per solved
    item; `seconds_per_solved` method -> k -> seconds of generation. Gains: at n_max over pass@1.
    `outcomes` counts bad answers and scores; `lacking` names selectors that had nothing to read.
    """

    items: int
    n_max: int
    samples: int
    tokens: int
    truncated: float
    judge_accuracy: float | None
    judge_gain: dict[str, float] | None
    majority_gain: dict[str, float] | None
    gains: dict[str, dict[str, float]]
    tokens_per_solved: float | None
    generation_seconds: float
    seconds_per_solved: dict[str, dict[str, float | None]]
    outcomes: dict[str, int]
    lacking: list[str]
    curve: list[dict[str, float | None]]


def run(
    config: BestOfNConfig,
    *,
    policy: Annotated[Path | None, In(POLICY)] = None,
    evaluation: Annotated[Path | None, In(Prompt)] = None,
    candidates: Annotated[Path | None, In(SCORES)] = None,
    judge: Annotated[Path | None, In(JUDGE)] = None,
    scores: Annotated[Path, Out(SCORES)],
    journal: Journal,
) -> BestOfNReport:
    from posttrain.best_of_n.curve import curve_of
    from posttrain.best_of_n.drawing import (
        drawing,
        read_prompts,
        recording,
        told,
        toll_of,
    )
    from posttrain.best_of_n.recorded import digest_of_file, recorded_rows
    from posttrain.best_of_n.selectors import chosen
    from posttrain.engines import ENGINES, Sampling
    from posttrain.reward_model.loading import load_judge
    from posttrain.samples import in_chunks

    selectors = chosen(config.selectors)
    make_engine = build(ENGINES, config.engine, "best_of_n.engine")
    check_sources(config, policy, evaluation, candidates)
    if policy and evaluation:
        from posttrain.policies import load_policy

        prompts = read_prompts(evaluation, config.limit)
        sampling = Sampling(
            samples=config.n_max,
            temperature=config.temperature,
            top_p=config.top_p,
            max_new_tokens=config.max_new_tokens,
            seed=config.seed,
        )
        source = drawing(make_engine(load_policy(policy)), sampling, prompts)
    else:
        earlier = read_rows(candidates, Sample) if candidates else recorded_rows(config.recorded)
        source = recording(earlier, config.n_max, config.limit)
    scorer = load_judge(judge, allow_failed=config.allow_failed_judge) if judge else None
    rows: list[Sample] = []
    fill = partial(told, source, scorer, config.judge_characters, journal.scratch)
    for chunk in in_chunks(source.items, config.chunk, journal.scratch, "samples", fill):
        rows += chunk
        journal.progress(len(rows) // source.n, len(source.items), "prompt")
        journal.pause()
    toll = toll_of(journal.scratch, rows, config.judge_characters)
    curve = curve_of(rows, source.n, config.resamples, config.seed, selectors)
    for k, *values in zip(curve.ks, *curve.methods.values(), strict=True):
        named = zip(curve.methods, values, strict=True)
        journal.log(k, **{f"{method}_at_k": interval.value for method, interval in named})
    write_rows(scores, rows)
    write_rows(scores, curve.scores(len(source.items)), SCORE_ROWS)
    if config.recorded:
        (scores / FILES_READ).write_text(digest_of_file(config.recorded), encoding="utf-8")
    return report_of(curve, rows, source.n, toll)


def check_sources(
    config: BestOfNConfig, policy: Path | None, evaluation: Path | None, candidates: Path | None
) -> None:
    """Raise ConfigError unless samples come from one place: policy and prompts, or a record."""
    drawn = policy is not None and evaluation is not None
    half = (policy is None) != (evaluation is None)
    if half or drawn + (candidates is not None) + (config.recorded is not None) != 1:
        raise ConfigError(
            Fault(
                "samples must come from one place",
                "best_of_n: --policy, --evaluation, --candidates, recorded",
                "they are drawn by a policy on prompts, or read from candidates or a record",
                "give --policy with --evaluation, or --candidates, or the option `recorded`",
            )
        )


def report_of(curve: "Curve", rows: Sequence[Sample], n_max: int, toll: "Toll") -> BestOfNReport:
    """The curve, what it cost, and what went wrong."""
    gains = {method: interval._asdict() for method, interval in curve.gains.items()}
    points = curve.points()
    seconds = curve.per_solved(toll.seconds / len(rows) if toll.seconds else None)
    return BestOfNReport(
        items=len(rows) // n_max,
        n_max=n_max,
        samples=len(rows),
        tokens=sum(row.tokens for row in rows),
        truncated=sum(row.truncated for row in rows) / len(rows),
        judge_accuracy=curve.judge_accuracy,
        judge_gain=gains.get("judge"),
        majority_gain=gains.get("majority"),
        gains=gains,
        tokens_per_solved=points[-1]["tokens_per_solved"],
        generation_seconds=toll.seconds,
        seconds_per_solved={
            method: {str(k): value for k, value in zip(curve.ks, values, strict=True)}
            for method, values in seconds.items()
        },
        outcomes=dict(toll.counts),
        lacking=curve.lacking,
        curve=points,
    )


def preflight(config: BestOfNConfig) -> Iterator[Fault]:
    """A record that is not there."""
    from posttrain.best_of_n.recorded import absent

    yield from absent(config.recorded) if config.recorded else ()


def still_holds(outputs: Mapping[str, Path], config: BestOfNConfig) -> str | None:
    """Stored scores no longer hold when the record they were made of has changed."""
    from posttrain.best_of_n.recorded import digest_of_file

    stored = outputs["scores"] / FILES_READ
    same = not config.recorded or stored.read_text("utf-8") == digest_of_file(config.recorded)
    return None if same else "the recorded file has changed"
