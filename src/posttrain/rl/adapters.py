"""A LoRA adapter on a frozen base."""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from posttrain.rl.config import RLConfig


def with_adapter(model: Any, config: "RLConfig") -> Any:
    """Freeze the model and add a LoRA adapter (arXiv:2106.09685) to each of its linear layers."""
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules="all-linear",
    )
    # PEFT draws the adapter's start from the global generator.
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return get_peft_model(model, adapter)
