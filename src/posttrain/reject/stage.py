"""policy, prompts, judge (optional) -> demonstrations

Rejection sampling: draw N completions of each prompt, drop the wrong, the unfinished and the
repeated, and let a selector choose among the rest. Every sample is kept or dropped for one
counted reason. Left out on purpose: a second try for prompts that nobody solved (that is the
work of `rl`), and training (the demonstrations feed a second `sft`).
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from posttrain.artifacts import JUDGE, POLICY, In, Out, read_rows, write_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Demonstration, Prompt, content_id
from posttrain.reject.selectors import SELECTORS, Candidate
from posttrain.reward_model.panel import PanelWord, panel_word, sigmoid

if TYPE_CHECKING:
    from posttrain.reject.sift import Sifted


class RejectConfig(StageConfig):
    """Options of rejection sampling; RFT (arXiv:2308.01825) draws at temperature 0.7."""

    samples: int = Field(8, ge=1, description="completions drawn per prompt")
    temperature: float = Field(0.7, ge=0, description="of sampling; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus of the sampling")
    top_k: int = Field(0, ge=0, description="sample among the likeliest tokens; 0: among all")
    max_new_tokens: int = Field(256, ge=1, description="longer completions are cut and dropped")
    max_prompts: int = Field(0, ge=0, description="draw for so many random prompts; 0: for all")
    keep_truncated: bool = Field(False, description="cut completions count too; for a rehearsal")
    verifier: bool = Field(True, description="drop completions whose final answer is wrong")
    selector: Annotated[Plugin, Family("posttrain.reject.selectors:SELECTORS")] = Field(
        Plugin(name="all_correct"), description="which of the remaining completions to keep"
    )
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="where tokens come from"
    )
    allow_failed_judge: bool = Field(
        False, description="use a judge that did not pass its panel; the report says so"
    )
    chunk: int = Field(64, ge=1, description="prompts per chunk: what a kill makes repeat")


class RejectReport(Report):
    """samples = kept + the sum of `dropped`; rates are of samples, `solved` of prompts.

    `judge_panel` is the verdict on the judge, `none` without one; `judge_costs` counts what a judge
    that writes was asked, since the stage last began.
    """

    prompts: int
    samples: int
    kept: int
    dropped: dict[str, int]
    prompts_kept: int
    pass_rate: float | None
    solved: float | None
    pass_rate_by_difficulty: dict[str, float]
    truncated: float
    mean_tokens: float
    judge_mean: float | None
    judge_mean_kept: float | None
    judge_panel: PanelWord = "none"
    judge_costs: dict[str, float] = {}


def run(
    config: RejectConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    prompts: Annotated[Path, In(Prompt)],
    judge: Annotated[Path | None, In(JUDGE)] = None,
    demonstrations: Annotated[Path, Out(Demonstration)],
    journal: Journal,
) -> RejectReport:
    """Draw, sift, select and write, a chunk of prompts at a time."""
    from posttrain.engines import ENGINES, Sampling
    from posttrain.policies import load_policy
    from posttrain.reject.sift import chunks, draw, sift
    from posttrain.reward_model.costs import spending

    selector = build(SELECTORS, config.selector, "reject.selector")
    make_engine = build(ENGINES, config.engine, "reject.engine")
    check_scorers(config, judged=judge is not None)
    # A selector that cannot do without a judge says so here, before any model is loaded.
    selector([Candidate("", True, None if judge is None else 0.0)])

    rows = drawn_from(list(read_rows(prompts, Prompt)), config)
    if not rows:
        raise DataError(Fault("no prompts", str(prompts), "it holds no rows", "give prompts"))
    scorer = None
    if judge is not None:
        from posttrain.reward_model.loading import load_judge

        scorer = load_judge(judge, allow_failed=config.allow_failed_judge)
    engine = make_engine(load_policy(policy))
    sampling = Sampling(
        samples=config.samples,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_new_tokens=config.max_new_tokens,
    )

    sifted: list[Sifted] = []
    for number, chunk in enumerate(chunks(rows, config.chunk)):
        drawn = draw(engine, chunk, sampling, config.seed, number, journal.scratch)
        strict = {"verifier": config.verifier, "keep_truncated": config.keep_truncated}
        found = sift(chunk, drawn, selector, scorer, **strict)
        journal.log(number, **report(found).scalars())
        sifted += found
        journal.progress(len(sifted), len(rows), "prompt")
        journal.pause()
    write_rows(demonstrations, kept_rows(sifted))
    of_judge = {"judge_panel": panel_word(judge), "judge_costs": spending(scorer)}
    return report(sifted).model_copy(update=of_judge)


def check_scorers(config: RejectConfig, *, judged: bool) -> None:
    """Raise ConfigError when nothing would tell a good completion from a bad one."""
    if not config.verifier and not judged:
        raise ConfigError(
            Fault(
                "neither verifier nor judge",
                "reject.verifier",
                "every completion would be kept, good or bad",
                "turn the verifier on, or give --judge",
            )
        )


def drawn_from(rows: list[Prompt], config: RejectConfig) -> list[Prompt]:
    """All prompts, or `max_prompts` of them drawn from the seed, in their order."""
    if not config.max_prompts or config.max_prompts >= len(rows):
        return rows
    import random

    rng = random.Random(f"{config.seed}/reject prompts")
    return [rows[i] for i in sorted(rng.sample(range(len(rows)), config.max_prompts))]


def kept_rows(sifted: "list[Sifted]") -> Iterator[Demonstration]:
    """The demonstrations, by prompt; without a verifier the judge's chance is the reward."""
    for one in sifted:
        for candidate, fate in zip(one.candidates, one.fates, strict=True):
            if fate == "kept":
                yield Demonstration(
                    id=content_id(one.prompt.id, candidate.text),
                    prompt_id=one.prompt.id,
                    prompt=one.prompt.text,
                    response=candidate.text,
                    reward=1.0 if candidate.correct else sigmoid(candidate.judge or 0.0),
                    source="reject",
                )


def report(sifted: "list[Sifted]") -> RejectReport:
    """Count the fates."""
    fates = Counter(fate for one in sifted for fate in one.fates)
    drawn = [d for one in sifted for d in one.drawn]
    pairs = [pair for one in sifted for pair in zip(one.candidates, one.fates, strict=True)]
    right = [[bool(c.correct) for c in one.candidates] for one in sifted]
    verified = all(candidate.correct is not None for candidate, _ in pairs)
    by_difficulty: dict[int, list[bool]] = {}
    for one, hits in zip(sifted, right, strict=True):
        if verified and one.prompt.difficulty is not None:
            by_difficulty.setdefault(one.prompt.difficulty, []).extend(hits)
    scores = [c.judge for c, _ in pairs if c.judge is not None]
    kept_scores = [c.judge for c, fate in pairs if c.judge is not None and fate == "kept"]
    return RejectReport(
        prompts=len(sifted),
        samples=len(drawn),
        kept=fates.pop("kept", 0),
        dropped=dict(sorted(fates.items())),
        prompts_kept=sum("kept" in one.fates for one in sifted),
        pass_rate=fmean(hit for hits in right for hit in hits) if verified else None,
        solved=fmean(any(hits) for hits in right) if verified else None,
        pass_rate_by_difficulty={str(k): fmean(v) for k, v in sorted(by_difficulty.items())},
        truncated=fmean(d.truncated for d in drawn),
        mean_tokens=fmean(d.tokens for d in drawn),
        judge_mean=fmean(scores) if scores else None,
        judge_mean_kept=fmean(kept_scores) if kept_scores else None,
    )
