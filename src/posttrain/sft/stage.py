"""policy, demonstrations -> trained policy

Supervised fine-tuning with TRL's SFTTrainer: the policy learns the assistant's tokens of each
demonstration, and the loss on prompts it never saw is measured before and after.
Left out on purpose: cutting rows that are too long (half an answer teaches half an answer;
they are dropped and counted) and packing that lets one document read another.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posttrain.artifacts import POLICY, In, Out, read_rows
from posttrain.config import Field, Report
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.records import Demonstration
from posttrain.training import TrainingConfig, held_out, row_order

if TYPE_CHECKING:
    from posttrain.token_rows import TokenRow


class SftConfig(TrainingConfig):
    """Options of supervised fine-tuning; the learning rate is TRL's."""

    packing: bool = Field(
        False, description="fill rows of max_length with several demonstrations, kept apart"
    )
    eval_share: float = Field(0.05, ge=0, lt=1, description="share of the prompts held out")


class SftReport(Report):
    """Losses are nats per assistant token; None where there was nothing to measure."""

    rows: int
    held_out_rows: int
    too_long: int
    steps: int
    epochs: float
    tokens: int
    train_loss_first: float
    train_loss_last: float
    held_out_loss_before: float | None
    held_out_loss_after: float | None


def run(
    config: SftConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    demonstrations: Annotated[Path, In(Demonstration)],
    trained: Annotated[Path, Out(POLICY)],
    journal: Journal,
) -> SftReport:
    """Train the policy on the demonstrations and write it with any adapter merged."""
    rows = list(read_rows(demonstrations, Demonstration))
    if not rows:
        raise no_rows(demonstrations, "it holds no demonstrations")

    import torch
    from transformers import set_seed

    from posttrain.hf_trainer import quiet, train
    from posttrain.policies import load_policy, save_policy
    from posttrain.token_rows import check_rows, token_loss, token_rows

    quiet()
    model, tokenizer = load_policy(policy, dtype=torch.float32)
    tokens = token_rows(tokenizer, [r.prompt for r in rows], [r.response for r in rows])
    check_rows(tokenizer, tokens, rows[0].prompt)
    fitting = [
        (row, token_row)
        for row, token_row in zip(rows, tokens, strict=True)
        if len(token_row.ids) <= config.max_length
    ]
    learned = [t for row, t in fitting if not held_out(row.prompt_id, config.eval_share)]
    unseen = [t for row, t in fitting if held_out(row.prompt_id, config.eval_share)]
    if not learned:
        raise no_rows(
            demonstrations,
            f"{len(rows) - len(fitting)} of {len(rows)} rows exceed max_length"
            f" {config.max_length}, {len(unseen)} are held out",
        )

    before = token_loss(model, unseen, config.rows_per_pass) if unseen else None
    # The Trainer and PEFT draw from the global generator, for dropout and the adapter's start.
    set_seed(config.seed)
    trainer = sft_trainer(config, model, tokenizer, learned, journal)
    done = train(trainer, journal)
    after = token_loss(done.model, unseen, config.rows_per_pass) if unseen else None
    save_policy(done.model, tokenizer, trained)
    seen = trainer.train_dataset["input_ids"]
    return SftReport(
        rows=len(learned),
        held_out_rows=len(unseen),
        too_long=len(rows) - len(fitting),
        steps=trainer.state.global_step,
        epochs=sum(map(len, seen)) / sum(len(row.ids) for row in learned),
        tokens=sum(map(len, seen)),
        train_loss_first=done.logged[0]["loss"],
        train_loss_last=done.logged[-1]["loss"],
        held_out_loss_before=before,
        held_out_loss_after=after,
    )


def sft_trainer(
    config: SftConfig, model: Any, tokenizer: Any, rows: "list[TokenRow]", journal: Journal
) -> Any:
    """TRL's trainer over the rows, already tokenised and in the order they are trained on.

    Packed rows carry the lengths of their documents; TRL makes position ids of them, and the
    attention mask keeps the documents apart.
    """
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer, pack_dataset

    from posttrain.hf_trainer import JournalCallback, adapter, trainer_arguments

    dataset = Dataset.from_dict(
        {"input_ids": [row.ids for row in rows], "labels": [row.labels for row in rows]}
    )
    if config.packing:
        dataset = pack_dataset(dataset, config.max_length, strategy="bfd")
    order = row_order([len(ids) for ids in dataset["input_ids"]], config)
    arguments = SFTConfig(
        **trainer_arguments(config, journal.scratch, len(order)),
        packing=config.packing,
        packing_strategy="bfd",
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    return SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset.select(order),
        processing_class=tokenizer,
        peft_config=adapter(config, "CAUSAL_LM"),
        callbacks=[JournalCallback(journal, config.checkpoint_every)],
    )


def no_rows(folder: Path, why: str) -> DataError:
    """The error of a dataset that leaves nothing to train on."""
    return DataError(
        Fault("nothing to learn", str(folder), why, "give more rows or widen the options")
    )
