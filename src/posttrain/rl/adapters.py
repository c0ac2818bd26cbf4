"""The policy as `rl` trains it: in float32, whole or by a LoRA adapter on a frozen base."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate import Accelerator
from torch.nn import Parameter

from posttrain.errors import ConfigError, Fault
from posttrain.policies import Policy, load_policy
from posttrain.reward_model.sharing import can_share
from posttrain.rl.crew import place
from posttrain.rl.sharding import shard

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
    """A policy on its device; `model`, what is trained of it: the same, or this process's share of
    another copy; and the weights that training changes, of the model and of the policy."""

    accelerator: Accelerator
    policy: Policy
    model: Any
    weights: dict[str, Parameter]
    whole: dict[str, Parameter]


def load_trainee(folder: Path, config: "RLConfig") -> Trainee:
    """Read a policy folder; on a GPU its forward pass is in bfloat16.

    With shards, process 0 has a whole copy besides, which draws; it alone needs one.
    """
    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if on_gpu else "no")
    policy = load_policy(folder, dtype=torch.float32)
    if config.sharding == "fsdp2" and place().size > 1:
        return sharded(accelerator, policy, folder)
    model = with_adapter(policy.model, config) if config.lora_rank else policy.model
    weights = trained(model)
    # `crew` adds gradients up: DistributedDataParallel wants as many forward passes in each
    # process, and gradients of one pass, where ours are of a prompt's and its completions'.
    model = accelerator.prepare_model(model.eval(), evaluation_mode=True)
    return Trainee(accelerator, Policy(model, policy.tokenizer), model, weights, weights)


def sharded(accelerator: Accelerator, policy: Policy, folder: Path) -> Trainee:
    """This process's share of the policy, on process 0 beside the policy itself."""
    first = place().rank == 0
    own = load_policy(folder, dtype=torch.float32).model if first else policy.model
    model = shard(own.to(accelerator.device).eval())
    if not first:
        return Trainee(accelerator, Policy(model, policy.tokenizer), model, trained(model), {})
    policy.model.to(accelerator.device).eval()
    return Trainee(accelerator, policy, model, trained(model), trained(policy.model))


def trained(model: Any) -> dict[str, Parameter]:
    """The weights that have a gradient, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_packs(model: Any) -> None:
    """Raise ConfigError if the model's layers would not keep packed texts apart."""
    if not can_share(model):
        raise ConfigError(
            Fault(
                "this policy cannot read packed rows",
                "rl.packing",
                "a layer of it has a sliding window, is recurrent, or takes no mask of ours",
                "leave `packing` out",
            )
        )
