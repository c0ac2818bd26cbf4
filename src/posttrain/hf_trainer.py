"""Where a stage meets the Hugging Face Trainer: its arguments, checkpoints and numbers.

The Trainer does not save atomically, so a checkpoint counts only when the marker written
after it lists the files that are there; a run killed in the middle of a save goes back to
the checkpoint before.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import torch
import transformers
from transformers import PrinterCallback, TrainerCallback

from posttrain.artifacts import write_json
from posttrain.durable import settle
from posttrain.journal import Journal
from posttrain.training import TrainingConfig

COMPLETE = "complete.json"
SUMS = "sums.json"
CURVES = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "mean_token_accuracy": "token_accuracy",
    "entropy": "entropy",
    "accuracy": "pair_accuracy",
    "margin": "margin",
    "mean_reward": "reward/mean",
}


def trainer_arguments(config: TrainingConfig, scratch: Path, rows: int) -> dict[str, Any]:
    """Keyword arguments of an `SFTConfig` or `RewardConfig` for `rows` rows in their order."""
    cuda = torch.cuda.is_available()
    steps = -(-rows // config.batch_size)
    return {
        "output_dir": str(scratch),
        "use_cpu": not cuda,
        "bf16": config.precision == "bfloat16" or (config.precision == "auto" and cuda),
        "activation_checkpointing": config.gradient_checkpointing,
        "learning_rate": config.learning_rate,
        "num_train_epochs": 1,
        "per_device_train_batch_size": config.rows_per_pass,
        "per_device_eval_batch_size": config.rows_per_pass,
        "gradient_accumulation_steps": config.batch_size // config.rows_per_pass,
        "train_sampling_strategy": "sequential",
        "warmup_steps": round(config.warmup * steps),
        "lr_scheduler_type": config.scheduler,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "max_length": config.max_length,
        "save_strategy": "steps",
        "save_steps": config.checkpoint_every,
        "save_total_limit": 2,
        "logging_steps": min(config.log_every, steps),
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": cuda,
        "seed": config.seed,
    }


def adapter(config: TrainingConfig, task: str) -> Any:
    """The LoRA settings for PEFT, over every linear layer but the head; None: train it all."""
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        task_type=task,
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
    )


class JournalCallback(TrainerCallback):  # type: ignore[misc]
    """Sends the Trainer's numbers to the journal."""

    def __init__(self, journal: Journal, checkpoint_every: int) -> None:
        self.journal = journal
        self.checkpoint_every = checkpoint_every

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A resumed run starts a new logging window at its checkpoint; so must one without a stop.
        if state.global_step % self.checkpoint_every == 0:
            control.should_log = True
        self.journal.progress(state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        metrics = {CURVES[name]: value for name, value in logs.items() if name in CURVES}
        if metrics:
            self.journal.log(state.global_step, **metrics)


class CheckpointCallback(TrainerCallback):  # type: ignore[misc]
    """Marks each checkpoint as complete, and has one written when the stage is asked to stop.

    Such a checkpoint falls between two points of the curves; it keeps what the Trainer has added
    up since the last one, or the next point would be another than without a stop.
    """

    def __init__(self, trainer: Any, journal: Journal, resumed: Path | None) -> None:
        self.trainer, self.journal, self.resumed = trainer, journal, resumed

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.resumed is None or not (self.resumed / SUMS).is_file():
            return
        sums = json.loads((self.resumed / SUMS).read_text(encoding="utf-8"))
        self.trainer._tr_loss += sums["loss"]
        self.trainer._globalstep_last_logged = sums["logged"]
        for name, values in sums["metrics"].items():
            self.trainer._metrics["train"][name] = values
        # If no step is left, none sets it, and the last point would be one of evaluation.
        self.trainer.model.train()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save |= self.journal.stopping

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        metrics = getattr(self.trainer, "_metrics", {"train": {}})["train"]
        sums = {
            "loss": self.trainer._tr_loss.item(),
            "logged": self.trainer._globalstep_last_logged,
            "metrics": dict(metrics),
        }
        write_json(checkpoint / SUMS, sums)
        self.journal.sync()
        mark_complete(checkpoint)
        self.journal.pause()


def mark_complete(checkpoint: Path) -> None:
    """Write the marker, last: the name and size in bytes of each file of the checkpoint."""
    settle(checkpoint)
    write_json(checkpoint / COMPLETE, file_sizes(checkpoint))


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of each file of a folder but the marker."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != COMPLETE)
    return {path.name: path.stat().st_size for path in files}


def is_complete(checkpoint: Path) -> bool:
    """Whether every file that the marker lists is there in full."""
    try:
        marked = json.loads((checkpoint / COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marked, dict) and marked.items() <= file_sizes(checkpoint).items()


def latest_checkpoint(scratch: Path) -> Path | None:
    """The last complete checkpoint; the incomplete ones are removed, for they are in the way."""
    checkpoints = sorted(
        (path for path in scratch.glob("checkpoint-*") if path.is_dir()),
        key=lambda path: int(path.name.rpartition("-")[2]),
    )
    for checkpoint in reversed(checkpoints):
        if is_complete(checkpoint):
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


class Trained(NamedTuple):
    """The trained model, computing in its own precision again, and the numbers logged."""

    model: Any
    logged: list[Mapping[str, float]]


def train(trainer: Any, journal: Journal) -> Trained:
    """Train from the last complete checkpoint, or from the start."""
    trainer.remove_callback(PrinterCallback)
    # TRL writes a model card into every checkpoint; nobody reads it there.
    trainer.create_model_card = lambda *_, **__: None
    checkpoint = latest_checkpoint(journal.scratch)
    trainer.add_callback(CheckpointCallback(trainer, journal, checkpoint))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    # The trainer leaves its autocast around the forward pass; measurements must not run in it.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    return Trained(model, logged)


def quiet() -> None:
    """Let only errors of the training libraries through; a score head starts untrained."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
