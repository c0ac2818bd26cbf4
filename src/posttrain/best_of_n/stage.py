"""policy, evaluation prompts, judge (optional) -> scores.

Draws `n_max` samples of every prompt once and reads off what every smaller N would give: any
right (pass@k), the most frequent answer (majority@k), the judge's favourite (judge@k). Left out
on purpose: search during decoding, and weighting votes by the judge.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from posttrain.artifacts import JUDGE, POLICY, SCORES, In, Out, read_rows, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Prompt, Sample

if TYPE_CHECKING:
    from posttrain.best_of_n.curve import Curve
    from posttrain.engines import Engine, Sampling
    from posttrain.reward_model.judge import Judge

SCORE_ROWS = "scores.jsonl"


class BestOfNConfig(StageConfig):
    """How many samples, how they are drawn, and how much the intervals cost."""

    n_max: int = Field(16, ge=1, le=256, description="samples per prompt; k goes up to it by 2x")
    temperature: float = Field(1.0, gt=0, description="of sampling")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus of sampling; 1 keeps all")
    max_new_tokens: int = Field(256, ge=1, description="longest response, in tokens")
    limit: int | None = Field(None, ge=1, description="prompts, the first so many; none: all")
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="where tokens come from"
    )
    resamples: int = Field(2000, ge=100, description="bootstrap resamples of the items")
    chunk: int = Field(64, ge=1, description="prompts between two checkpoints")


class BestOfNReport(Report):
    """`curve` holds, for each k, pass, majority and judge with `_low` and `_high`, and tokens per
    solved problem by the best method that needs no answer key. `*_gain`: at n_max over pass@1.
    """

    items: int
    n_max: int
    samples: int
    tokens: int
    truncated: float
    judge_accuracy: float | None
    judge_gain: dict[str, float] | None
    majority_gain: dict[str, float]
    tokens_per_solved: float | None
    curve: list[dict[str, float | None]]


def run(
    config: BestOfNConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    evaluation: Annotated[Path, In(Prompt)],
    judge: Annotated[Path | None, In(JUDGE)] = None,
    scores: Annotated[Path, Out(SCORES)],
    journal: Journal,
) -> BestOfNReport:
    from posttrain.best_of_n.curve import curve_of
    from posttrain.engines import ENGINES, Sampling
    from posttrain.policies import load_policy
    from posttrain.samples import in_chunks

    make_engine = build(ENGINES, config.engine, "best_of_n.engine")
    prompts = read_prompts(evaluation, config.limit)
    engine = make_engine(load_policy(policy))
    scorer = None
    if judge is not None:
        from posttrain.reward_model.judge import load_judge

        scorer = load_judge(judge)
    sampling = Sampling(
        samples=config.n_max,
        temperature=config.temperature,
        top_p=config.top_p,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
    )
    rows: list[Sample] = []
    draw = partial(judged, engine, scorer, sampling)
    for chunk in in_chunks(prompts, config.chunk, journal.scratch, "samples", draw):
        rows += chunk
        journal.progress(len(rows) // config.n_max, len(prompts), "prompt")
    curve = curve_of(rows, config.n_max, config.resamples, config.seed)
    for k, *values in zip(curve.ks, *curve.methods.values(), strict=True):
        named = zip(curve.methods, values, strict=True)
        journal.log(k, **{f"{method}_at_k": interval.value for method, interval in named})
    write_rows(scores, rows)
    write_rows(scores, curve.scores(len(prompts)), SCORE_ROWS)
    return report_of(curve, rows, config.n_max)


def read_prompts(folder: Path, limit: int | None) -> list[Prompt]:
    """The first `limit` prompts; DataError when there are none or one names no verifier."""
    from posttrain.rewards.verifiers import verifier_of

    prompts = list(read_rows(folder, Prompt))[:limit]
    if not prompts:
        raise DataError(
            Fault("no prompts", str(folder), "the file is empty", "give evaluation prompts")
        )
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        verifier_of(task)
    return prompts


def judged(
    engine: "Engine",
    judge: "Judge | None",
    sampling: "Sampling",
    prompts: Sequence[Prompt],
    place: int,
) -> list[Sample]:
    """Draw and verify a chunk; with a judge, score it too."""
    from posttrain.best_of_n.curve import SUITE
    from posttrain.samples import generated, seed_of

    seed = seed_of(sampling.seed, SUITE, place)
    rows = generated(engine, SUITE, prompts, sampling._replace(seed=seed))
    if judge is None:
        return rows
    scores = judge.score([row.prompt for row in rows], [row.response for row in rows])
    pairs = zip(rows, scores, strict=True)
    return [row.model_copy(update={"judge": round(score, 6)}) for row, score in pairs]


def report_of(curve: "Curve", rows: Sequence[Sample], n_max: int) -> BestOfNReport:
    """The curve and what it cost."""
    gains = {method: interval._asdict() for method, interval in curve.gains.items()}
    points = curve.points()
    return BestOfNReport(
        items=len(rows) // n_max,
        n_max=n_max,
        samples=len(rows),
        tokens=sum(row.tokens for row in rows),
        truncated=sum(row.truncated for row in rows) / len(rows),
        judge_accuracy=curve.judge_accuracy,
        judge_gain=gains.get("judge"),
        majority_gain=gains["majority"],
        tokens_per_solved=points[-1]["tokens_per_solved"],
        curve=points,
    )
