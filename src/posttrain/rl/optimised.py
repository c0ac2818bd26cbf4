"""Weights and their AdamW as tensors in a row, and back: what a checkpoint holds of a network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from posttrain.rl.sharding import gathered, shared_out


def tensors_of(
    weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """The weights and the optimiser's moments, by name, and whole."""
    moments = optimizer.state_dict()["state"]
    return {f"weight/{name}": gathered(p) for name, p in weights.items()} | {
        f"moment/{index}/{key}": gathered(value)
        for index, values in moments.items()
        for key, value in values.items()
    }


def restore_into(
    weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Take over what `tensors_of` returned."""
    moments: dict[int, dict[str, Tensor]] = {}
    ordered = list(weights.values())
    with torch.no_grad():
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            if kind == "weight":
                weights[name].copy_(shared_out(value, weights[name]))
            else:
                index, _, part = name.partition("/")
                moments.setdefault(int(index), {})[part] = shared_out(value, ordered[int(index)])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
