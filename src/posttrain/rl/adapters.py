"""The policy as `rl` trains it: in float32, whole or by a LoRA adapter on a frozen base."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate import Accelerator
from torch.nn import Parameter

from posttrain.policies import Policy, load_policy

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


class Trainee(NamedTuple):
    """A policy on its device, and those of its weights that training changes."""

    accelerator: Accelerator
    policy: Policy
    weights: dict[str, Parameter]


def load_trainee(folder: Path, config: "RLConfig") -> Trainee:
    """Read a policy folder; on a GPU its forward pass is in bfloat16."""
    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if on_gpu else "no")
    policy = load_policy(folder, dtype=torch.float32)
    model = with_adapter(policy.model, config) if config.lora_rank else policy.model
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    # `crew` adds gradients up: DistributedDataParallel wants as many forward passes in each
    # process, and gradients of one pass, where ours are of a prompt's and its completions'.
    model = accelerator.prepare_model(model.eval(), evaluation_mode=True)
    return Trainee(accelerator, Policy(model, policy.tokenizer), weights)
