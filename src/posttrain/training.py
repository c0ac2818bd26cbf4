"""What supervised and reward-model training share: their options, row order and held-out split.

Nothing here imports torch; what meets the Hugging Face Trainer is in `hf_trainer`.
"""

import hashlib
import random
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator

from posttrain.config import Field, StageConfig

GROUPING_WINDOW = 32


class TrainingConfig(StageConfig):
    """Options of a training stage; a step is one update of the weights on `batch_size` rows."""

    learning_rate: float = Field(2e-5, gt=0, description="peak learning rate of AdamW")
    epochs: float = Field(1.0, gt=0, description="passes over the rows; see also max_steps")
    max_steps: int = Field(0, ge=0, description="stop after so many steps; 0: epochs decide")
    batch_size: int = Field(32, ge=1, description="rows per step")
    micro_batch_size: int = Field(
        0, ge=0, description="rows per forward pass, a divisor of batch_size; 0: all at once"
    )
    warmup: float = Field(0.03, ge=0, lt=1, description="share of the steps with a rising rate")
    scheduler: Literal["linear", "cosine", "constant_with_warmup"] = Field(
        "cosine", description="how the learning rate falls after the warm-up"
    )
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    max_length: int = Field(1024, ge=8, description="longer rows, in tokens, are left out")
    group_by_length: bool = Field(True, description="put rows of like length in a batch")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of the forward pass; auto: float32 on a CPU, bfloat16 on a GPU"
    )
    gradient_checkpointing: bool = Field(False, description="trade time for memory")
    lora_rank: int = Field(0, ge=0, description="rank of a LoRA adapter; 0 trains every weight")
    lora_alpha: float = Field(32.0, gt=0, description="LoRA scale is alpha / rank")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the adapter")
    checkpoint_every: int = Field(100, ge=1, description="steps between checkpoints")
    log_every: int = Field(5, ge=1, description="steps between points of the learning curves")

    @model_validator(mode="after")
    def _micro_batches_fill_the_batch(self) -> Self:
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} does not divide"
                f" batch_size {self.batch_size}"
            )
        return self

    @property
    def rows_per_pass(self) -> int:
        """Rows in one forward pass."""
        return self.micro_batch_size or self.batch_size


def held_out(prompt_id: str, share: float) -> bool:
    """Whether a prompt belongs to the held-out `share`, the same in every run and dataset."""
    digest = hashlib.sha256(f"held out:{prompt_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def row_order(lengths: Sequence[int], config: TrainingConfig) -> list[int]:
    """Row indices in the order in which they are trained on, over all epochs at once.

    One list drawn from the seed, so that a resumed run needs only its step to go on. With
    `group_by_length`, rows of like length stand together within windows of
    `GROUPING_WINDOW` batches, and the batches of a window are shuffled.
    """
    rng = random.Random(f"{config.seed}/row order")
    wanted = config.max_steps * config.batch_size or max(1, round(len(lengths) * config.epochs))
    order: list[int] = []
    while lengths and len(order) < wanted:
        order += rng.sample(range(len(lengths)), len(lengths))
    order = order[:wanted]
    if not config.group_by_length:
        return order
    size = config.batch_size
    grouped: list[int] = []
    for start in range(0, len(order), size * GROUPING_WINDOW):
        window = sorted(order[start : start + size * GROUPING_WINDOW], key=lambda i: -lengths[i])
        whole = len(window) - len(window) % size
        batches = [window[at : at + size] for at in range(0, whole, size)]
        rng.shuffle(batches)
        grouped += [index for batch in [*batches, window[whole:]] for index in batch]
    return grouped
