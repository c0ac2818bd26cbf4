"""policy, preferences -> judge

A Bradley-Terry reward model: the policy with a scalar head, trained with TRL's RewardTrainer to
score the chosen response above the rejected one. The finished judge is read back from its folder
and examined on held-out prompts and public sets; `panel.json` says whether anybody may use it.
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
from posttrain.records import Preference
from posttrain.reward_model.panel import PANEL, Panel, Thresholds, read_panel
from posttrain.reward_model.panel_sets import read_sets
from posttrain.training import TrainingConfig, held_out


class RewardModelConfig(TrainingConfig):
    """Options of reward-model training; the learning rate is TRL's."""

    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate of AdamW")
    pooling: Literal["last", "product", "likelihood"] = Field(
        "last",
        description="a head at the last token, or at every token, or the model's own chances",
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
    data_folder: str = Field("", description="public data files of the sets; empty: ask the hub")


class RewardModelReport(Report):
    """Losses are nats per pair; `panel` holds what the held-out pairs say; `shared_tokens` is the
    share of the tokens that were read once for both responses."""

    pairs: int
    too_long: int
    steps: int
    epochs: float
    tokens: int
    shared_tokens: float
    train_loss_first: float
    train_loss_last: float
    panel: Panel


def run(
    config: RewardModelConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    preferences: Annotated[Path, In(Preference)],
    judge: Annotated[Path, Out(JUDGE)],
    journal: Journal,
) -> RewardModelReport:
    """Train the judge, write it with any adapter merged, examine it."""
    sets = read_sets(config.panel_sets, config.data_folder)
    rows = list(read_rows(preferences, Preference))

    import torch
    from transformers import set_seed

    from posttrain.hf_trainer import quiet, train
    from posttrain.policies import load_policy, save_policy
    from posttrain.reward_model.examine import examine
    from posttrain.reward_model.judge import check_pad_token, load_judge, token_pairs
    from posttrain.reward_model.pooling import load_scoring_model
    from posttrain.reward_model.sharing import shared_share
    from posttrain.reward_model.trainer import reward_trainer

    quiet()
    tokenizer = load_policy(policy, dtype=torch.float32).tokenizer
    check_pad_token(tokenizer, policy)
    fitting = [pair for pair in token_pairs(tokenizer, rows) if pair.longest <= config.max_length]
    learned = [p for p in fitting if not held_out(p.row.prompt_id, config.eval_share)]
    unseen = [p for p in fitting if held_out(p.row.prompt_id, config.eval_share)]
    if not learned or not unseen:
        raise too_few(config, preferences, len(rows), len(fitting), len(learned), len(unseen))

    # A score head starts at random, and PEFT and the Trainer draw from the global generator.
    set_seed(config.seed)
    model = load_scoring_model(policy, config.pooling)
    trainer = reward_trainer(config, model, tokenizer, learned, journal)
    done = train(trainer, journal)
    save_policy(done.model, tokenizer, judge)
    finished = load_judge(judge, require_panel=False)
    panel = examine(finished, unseen, done.model, thresholds(config), sets)
    write_json(judge / PANEL, panel.model_dump(mode="json"))
    seen = trainer.train_dataset
    tokens = sum(map(len, seen["chosen_ids"])) + sum(map(len, seen["rejected_ids"]))
    return RewardModelReport(
        pairs=len(learned),
        too_long=len(rows) - len(fitting),
        steps=trainer.state.global_step,
        epochs=len(seen) / len(learned),
        tokens=tokens,
        shared_tokens=shared_share(trainer),
        train_loss_first=done.logged[0]["loss"],
        train_loss_last=done.logged[-1]["loss"],
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
    """Panel sets whose items cannot be had."""
    try:
        read_sets(config.panel_sets, config.data_folder)
    except PosttrainError as error:
        yield from error.faults


def still_holds(outputs: Mapping[str, Path], config: RewardModelConfig) -> str | None:
    """Why a stored panel no longer holds: the items of a set are others now. Else None."""
    stored = read_panel(outputs["judge"]).sets
    for name, found in read_sets(config.panel_sets, config.data_folder).items():
        if name not in stored or stored[name].digest != found.digest:
            return f"the items of {name} have changed"
    return None
