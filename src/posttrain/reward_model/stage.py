"""policy, preferences -> judge

A Bradley-Terry reward model: the policy with a scalar head, trained with TRL's RewardTrainer to
score the chosen response above the rejected one. The finished judge is read back from its folder
and examined on held-out prompts; `panel.json` says whether anybody may use it.
Left out on purpose: failing the stage when the panel fails (the numbers are the result; whoever
loads the judge refuses), and cutting pairs that are too long (they are dropped and counted).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from posttrain.artifacts import JUDGE, POLICY, In, Out, read_rows, write_json
from posttrain.config import Field, Report
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.records import Preference
from posttrain.reward_model.panel import PANEL, Panel, Thresholds
from posttrain.training import TrainingConfig, held_out, row_order

if TYPE_CHECKING:
    from posttrain.reward_model.judge import TokenPair


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
    eval_share: float = Field(0.1, gt=0, lt=1, description="share of the prompts held out")
    min_accuracy: float = Field(0.70, ge=0, le=1, description="held-out accuracy to pass the panel")
    max_ece: float = Field(0.15, ge=0, le=1, description="calibration error to pass the panel")
    tolerance: float = Field(
        1e-3, gt=0, description="change of a score by padding or batch order to pass the panel"
    )
    max_bos_flips: float = Field(
        0.02, ge=0, le=1, description="share of winners a BOS token may change to pass the panel"
    )


class RewardModelReport(Report):
    """Losses are nats per pair; `panel` holds what the held-out pairs say."""

    pairs: int
    too_long: int
    steps: int
    epochs: float
    tokens: int
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
    rows = list(read_rows(preferences, Preference))

    import torch
    from transformers import set_seed

    from posttrain.hf_trainer import quiet, train
    from posttrain.policies import load_policy, save_policy
    from posttrain.reward_model.examine import examine
    from posttrain.reward_model.judge import check_pad_token, load_judge, token_pairs
    from posttrain.reward_model.pooling import load_scoring_model

    quiet()
    tokenizer = load_policy(policy, dtype=torch.float32).tokenizer
    check_pad_token(tokenizer, policy)
    fitting = [pair for pair in token_pairs(tokenizer, rows) if pair.longest <= config.max_length]
    learned = [p for p in fitting if not held_out(p.row.prompt_id, config.eval_share)]
    unseen = [p for p in fitting if held_out(p.row.prompt_id, config.eval_share)]
    if not learned or not unseen:
        raise DataError(
            Fault(
                "not enough preferences",
                str(preferences),
                f"of {len(rows)} pairs {len(rows) - len(fitting)} exceed max_length"
                f" {config.max_length}; {len(learned)} remain to learn, {len(unseen)} held out",
                "give more pairs, of more prompts, or widen the options",
            )
        )

    # A score head starts at random, and PEFT and the Trainer draw from the global generator.
    set_seed(config.seed)
    model = load_scoring_model(policy, config.pooling)
    trainer = reward_trainer(config, model, tokenizer, learned, journal)
    done = train(trainer, journal)
    save_policy(done.model, tokenizer, judge)
    finished = load_judge(judge, require_panel=False)
    panel = examine(finished, unseen, done.model, thresholds(config))
    write_json(judge / PANEL, panel.model_dump(mode="json"))
    seen = trainer.train_dataset
    tokens = sum(map(len, seen["chosen_ids"])) + sum(map(len, seen["rejected_ids"]))
    return RewardModelReport(
        pairs=len(learned),
        too_long=len(rows) - len(fitting),
        steps=trainer.state.global_step,
        epochs=len(seen) / len(learned),
        tokens=tokens,
        train_loss_first=done.logged[0]["loss"],
        train_loss_last=done.logged[-1]["loss"],
        panel=panel,
    )


def thresholds(config: RewardModelConfig) -> Thresholds:
    """What the panel asks for."""
    return Thresholds(
        min_accuracy=config.min_accuracy,
        max_ece=config.max_ece,
        tolerance=config.tolerance,
        max_bos_flips=config.max_bos_flips,
    )


def reward_trainer(
    config: RewardModelConfig,
    model: Any,
    tokenizer: Any,
    pairs: "list[TokenPair]",
    journal: Journal,
) -> Any:
    """TRL's trainer over the pairs, already tokenised and in the order they are trained on.

    Its loss is -log sigmoid(chosen - rejected - margin) + centring * (chosen + rejected)^2,
    averaged over pairs; without `margins`, or where a pair states none, the margin is 0.
    """
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    from posttrain.hf_trainer import JournalCallback, adapter, trainer_arguments
    from posttrain.reward_model.pooling import POOLINGS

    columns: dict[str, list[Any]] = {
        "chosen_ids": [pair.chosen for pair in pairs],
        "rejected_ids": [pair.rejected for pair in pairs],
    }
    if config.margins:
        columns["margin"] = [pair.row.margin or 0.0 for pair in pairs]
    order = row_order([pair.longest for pair in pairs], config)
    arguments = RewardConfig(
        **trainer_arguments(config, journal.scratch, len(order)),
        center_rewards_coefficient=config.centring or None,
    )
    return RewardTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns).select(order),
        processing_class=tokenizer,
        peft_config=adapter(config, POOLINGS[config.pooling].task),
        callbacks=[JournalCallback(journal, config.checkpoint_every)],
    )
