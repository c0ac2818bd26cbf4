"""TRL's reward trainer over our pairs, two responses with one beginning standing in one row."""

from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import RewardConfig, RewardTrainer

from posttrain.hf_trainer import JournalCallback, adapter, trainer_arguments
from posttrain.journal import Journal
from posttrain.reward_model.judge import TokenPair
from posttrain.reward_model.margins import AdaptiveTrainer, LiveMargin, MarginCollator
from posttrain.reward_model.pooling import POOLINGS
from posttrain.reward_model.sharing import PairCollator, can_share, width
from posttrain.reward_model.stage import RewardModelConfig
from posttrain.training import row_order


def reward_trainer(
    config: RewardModelConfig,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    pairs: list[TokenPair],
    journal: Journal,
    live: LiveMargin | None = None,
) -> Any:
    """The trainer over the pairs, already tokenised and in the order they are trained on.

    Its loss is -log sigmoid(chosen - rejected - margin) + centring * (chosen + rejected)^2,
    averaged over pairs; without `margins`, or where a pair states none, the margin is 0. A `live`
    margin comes on top, and reads both sides in full.
    """
    columns: dict[str, list[Any]] = {
        "chosen_ids": [pair.chosen for pair in pairs],
        "rejected_ids": [pair.rejected for pair in pairs],
    }
    if config.margins:
        columns["margin"] = [pair.row.margin or 0.0 for pair in pairs]
    shares = config.share_prefix and can_share(model) and live is None
    wide = [width((p.chosen, p.rejected)) if shares else p.longest for p in pairs]
    order = row_order(wide, config)
    arguments = RewardConfig(
        **trainer_arguments(config, journal.scratch, len(order)),
        center_rewards_coefficient=config.centring or None,
        remove_unused_columns=live is None,
    )
    pad = int(tokenizer.pad_token_id)
    given: dict[str, Any] = {
        "model": model,
        "args": arguments,
        "processing_class": tokenizer,
        "peft_config": adapter(config, POOLINGS[config.pooling].task),
        "callbacks": [JournalCallback(journal, config.checkpoint_every)],
    }
    if live is not None:
        rows = Dataset.from_dict(columns | live.columns(model, pairs)).select(order)
        return AdaptiveTrainer(live, data_collator=MarginCollator(pad), train_dataset=rows, **given)
    rows = Dataset.from_dict(columns).select(order)
    return RewardTrainer(
        data_collator=PairCollator(pad) if shares else None, train_dataset=rows, **given
    )
