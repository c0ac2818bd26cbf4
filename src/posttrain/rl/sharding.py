"""FSDP2: each process of the crew keeps a share of every weight, its gradient and its moments.

Weights are gathered layer by layer when a pass needs them, so that all processes must make as many
passes. Whatever is told of the weights (a checkpoint, the policy that draws) is whole again.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from posttrain.rl.crew import place


def shard(model: Any) -> Any:
    """Share out the weights of each layer, and of the rest; gradients are summed, not averaged."""
    mesh = init_device_mesh(model.device.type, (place().size,))
    for module in [*model.modules()]:
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # gloo, which serves CPUs, knows no sum with a factor.
            module.set_force_sum_reduction_for_comms(True)
    return model


def are_shards(tensors: Iterable[Tensor]) -> bool:
    """Whether any is a share of a larger one."""
    return any(isinstance(tensor, DTensor) for tensor in tensors)


def gathered(tensor: Tensor) -> Tensor:
    """The whole of it; all processes must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_out(whole: Tensor, like: Tensor) -> Tensor:
    """The whole tensor as `like` is spread; one of another shape stays as it is."""
    if not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements)


def copy_whole(
    shares: dict[str, torch.nn.Parameter], wholes: dict[str, torch.nn.Parameter]
) -> None:
    """Write what the shares make together into `wholes`, where a process has any."""
    with torch.no_grad():
        for name, share in shares.items():
            value = gathered(share)
            if name in wholes:
                wholes[name].copy_(value)
