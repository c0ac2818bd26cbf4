"""policy, preferences -> judge

Makes a judge of the chosen kind; the default is a Bradley-Terry reward model, the policy trained
with TRL's RewardTrainer to score the chosen response above the rejected one. Whatever its kind, it
is read back from its folder and examined on held-out prompts and public sets; `panel.json` says
whether anybody may use it.
Left out on purpose: failing the stage when the panel fails (the numbers are the result; whoever
loads the judge refuses), and cutting pairs that are too long (they are dropped and counted).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from posttrain.artifacts import JUDGE, POLICY, In, Out, read_rows, write_json
from posttrain.config import Family, Field, Plugin, Report
from posttrain.errors import DataError, Fault, PosttrainError
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Preference
from posttrain.reward_model.costs import costs_of, parse_failures, unanswered
from posttrain.reward_model.kinds import KINDS, Work
from posttrain.reward_model.overoptimisation import candidates_of, optimised, prompts_changed
from posttrain.reward_model.panel import PANEL, Panel, Thresholds, read_panel
from posttrain.reward_model.panel_sets import read_sets
from posttrain.training import TrainingConfig, held_out


class RewardModelConfig(TrainingConfig):
    """Options of reward-model training; the learning rate is TRL's."""

    kind: Annotated[Plugin, Family("posttrain.reward_model.kinds:KINDS")] = Field(
        Plugin(name="bradley_terry"), description="what the judge is and how it is made"
    )
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate of AdamW")
    pooling: Literal["last", "product", "likelihood"] = Field(
        "last",
        description="Bradley-Terry: a head at the last token, or at all; or the model's chances",
    )
    centring: float = Field(
        0.01, ge=0, description="weight of (chosen + rejected)^2, Eq. 2 of arXiv:2312.09244; 0: off"
    )
    margins: bool = Field(
        False, description="let the score gap exceed each pair's margin (arXiv:2307.09288, Eq. 2)"
    )
    share_prefix: bool = Field(
        True, description="read what both responses begin with once, where the model allows it"
    )
    eval_share: float = Field(0.1, gt=0, lt=1, description="share of the prompts held out")
    min_accuracy: float = Field(0.70, ge=0, le=1, description="held-out accuracy to pass the panel")
    max_ece: float = Field(0.15, ge=0, le=1, description="calibration error to pass the panel")
    tolerance: float = Field(
        1e-3, gt=0, description="change of a score by padding or batch order to pass the panel"
    )
    max_bos_flips: float = Field(
        0.02, ge=0, le=1, description="share of winners a BOS token may change to pass the panel"
    )
    max_length_correlation: float = Field(
        0.95, ge=0, le=1, description="of margins with length, surely no more to pass the panel"
    )
    min_length_balanced: float = Field(
        0.55, ge=0, le=1, description="mean accuracy where the better is longer, and shorter, ditto"
    )
    max_order_flips: float = Field(
        0.35, ge=0, le=1, description="share of winners that swapping a pair may change, likewise"
    )
    panel_sets: list[Annotated[Plugin, Family("posttrain.reward_model.panel_sets:PANEL_SETS")]] = (
        Field([], description="public sets to measure it on: `{name: llmbar, min_score: 0.6}`")
    )
    overoptimisation: Annotated[Plugin | None, Family("posttrain.benchmark.suites:CHOICES")] = (
        Field(
            None,
            description="prompts on which the best of n by the judge is verified:"
            " `{name: arithmetic, limit: 64, samples: 16}`",
        )
    )
    data_folder: str = Field("", description="public data files of the sets; empty: ask the hub")


class RewardModelReport(Report):
    """Losses are nats per pair; `panel` holds what the held-out pairs say; `shared_tokens` is the
    share of the tokens that were read once for both responses; `numbers` are the kind's own."""

    kind: str
    pairs: int
    too_long: int
    steps: int
    epochs: float
    tokens: int
    shared_tokens: float
    train_loss_first: float | None
    train_loss_last: float | None
    numbers: dict[str, float]
    panel: Panel


def run(
    config: RewardModelConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    preferences: Annotated[Path, In(Preference)],
    judge: Annotated[Path, Out(JUDGE)],
    journal: Journal,
) -> RewardModelReport:
    """Make the judge, read it back, examine it."""
    kind = build(KINDS, config.kind, "reward_model.kind")()
    sets = read_sets(config.panel_sets, config.data_folder)
    candidates = candidates_of(config.overoptimisation, config.data_folder)
    rows = list(read_rows(preferences, Preference))

    import torch
    from transformers import set_seed

    from posttrain.hf_trainer import quiet
    from posttrain.policies import load_policy
    from posttrain.reward_model.examine import examine
    from posttrain.reward_model.judge import token_pairs
    from posttrain.reward_model.loading import load_judge, write_kind

    quiet()
    tokenizer = load_policy(policy, dtype=torch.float32).tokenizer
    fitting = [pair for pair in token_pairs(tokenizer, rows) if pair.longest <= config.max_length]
    learned = [p for p in fitting if not held_out(p.row.prompt_id, config.eval_share)]
    unseen = [p for p in fitting if held_out(p.row.prompt_id, config.eval_share)]
    if not learned or not unseen:
        raise too_few(config, preferences, len(rows), len(fitting), len(learned), len(unseen))

    # A score head starts at random, and PEFT and the Trainer draw from the global generator.
    set_seed(config.seed)
    made = kind.make(Work(config, policy, tokenizer, learned, judge, journal))
    write_kind(judge, config.kind)
    finished = load_judge(judge, require_panel=False)
    panel = examine(finished, unseen, made.trained, thresholds(config), sets)
    panel = optimised(panel, candidates, policy, finished, config.seed)
    write_json(judge / PANEL, panel.model_dump(mode="json"))
    costs = costs_of(finished)
    return RewardModelReport(
        kind=config.kind.name,
        pairs=len(learned),
        too_long=len(rows) - len(fitting),
        steps=made.steps,
        epochs=made.epochs,
        tokens=made.tokens,
        shared_tokens=made.shared_tokens,
        train_loss_first=made.train_loss_first,
        train_loss_last=made.train_loss_last,
        numbers={**made.numbers, **costs, **parse_failures(costs)},
        panel=panel,
    )


def too_few(
    config: RewardModelConfig, where: Path, rows: int, fitting: int, learned: int, unseen: int
) -> DataError:
    """The error for pairs that leave nothing to learn, or nothing to hold out."""
    return DataError(
        Fault(
            "not enough preferences",
            str(where),
            f"of {rows} pairs {rows - fitting} exceed max_length {config.max_length};"
            f" {learned} remain to learn, {unseen} held out",
            "give more pairs, of more prompts, or widen the options",
        )
    )


def thresholds(config: RewardModelConfig) -> Thresholds:
    """What the panel asks for."""
    return Thresholds(
        min_accuracy=config.min_accuracy,
        max_ece=config.max_ece,
        tolerance=config.tolerance,
        max_bos_flips=config.max_bos_flips,
        max_length_correlation=config.max_length_correlation,
        min_length_balanced=config.min_length_balanced,
        max_order_flips=config.max_order_flips,
    )


def preflight(config: RewardModelConfig) -> Iterator[Fault]:
    """A kind that cannot be made of its options, and panel sets whose items cannot be had."""
    for ready in (
        lambda: build(KINDS, config.kind, "reward_model.kind")(),
        lambda: read_sets(config.panel_sets, config.data_folder),
        lambda: candidates_of(config.overoptimisation, config.data_folder),
    ):
        try:
            ready()
        except PosttrainError as error:
            yield from error.faults


def still_holds(outputs: Mapping[str, Path], config: RewardModelConfig) -> str | None:
    """Why a stored panel no longer holds: the items of a set are others now. Else None."""
    panel = read_panel(outputs["judge"])
    for name, found in read_sets(config.panel_sets, config.data_folder).items():
        if name not in panel.sets or panel.sets[name].digest != found.digest:
            return f"the items of {name} have changed"
    changed = prompts_changed(panel, config.overoptimisation, config.data_folder)
    return changed or unanswered(config.kind.name, panel.unscored)
