"""Precisions: the number formats in which a model draws and learns.

`role` is `rollout` or `train`; the context holds for one forward pass, or for the drawing of a
step, in which no weight changes. To add one, write the function and a line in PRECISIONS.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

Role = Literal["rollout", "train"]
Precision = Callable[..., AbstractContextManager[Any]]

E4M3_LARGEST = 448.0


def native(_model: Any, _role: Role, /) -> AbstractContextManager[Any]:
    """As the model is stored."""
    return nullcontext()


def unified_fp8(
    model: Any, _role: Role, /, *, block: Annotated[int, Field(ge=1)] = 128
) -> AbstractContextManager[Any]:
    """The linear layers in FP8 when drawing and when learning (Jet-RL, arXiv:2601.14243).

    E4M3 with the scale amax / 448 of each `block` x `block` of the weights and each 1 x `block`
    of the activations; the gradient goes straight through. The rounding is real and the
    arithmetic is not: this shows what FP8 does to learning, not how fast it is.
    """
    return fp8_linears(model, block)


def mixed_fp8(
    model: Any, role: Role, /, *, block: Annotated[int, Field(ge=1)] = 128
) -> AbstractContextManager[Any]:
    """As `unified_fp8` when drawing, as stored when learning: what Jet-RL warns of."""
    return fp8_linears(model, block) if role == "rollout" else nullcontext()


@contextmanager
def fp8_linears(model: nn.Module, block: int) -> Iterator[None]:
    """Run every linear layer of this model on rounded weights and activations.

    A layer's weights are rounded at its first call and kept until the end of the context.
    """
    own = {m: vars(m).get("forward") for m in model.modules() if isinstance(m, nn.Linear)}
    try:
        for module in own:
            vars(module)["forward"] = partial(_fp8_linear, module, block, [])
        yield
    finally:
        for module, forward in own.items():
            if forward is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = forward


def _fp8_linear(module: nn.Linear, block: int, kept: list[Tensor], given: Tensor) -> Tensor:
    if not kept:
        kept.append(fake_e4m3(module.weight, block, block))
    weight = straight_through(module.weight, kept[0])
    rounded = straight_through(given, fake_e4m3(given, 1, block))
    return functional.linear(rounded, weight, module.bias)


def fake_e4m3(values: Tensor, rows: int, columns: int) -> Tensor:
    """Round each block [rows, columns] of the last two dimensions to E4M3 on its own scale.

    The same shape and type, no gradient; the blocks at the edges may be smaller.
    """
    matrix = values.detach().float().reshape(-1, values.shape[-1])
    height, width = matrix.shape
    padded = functional.pad(matrix, (0, -width % columns, 0, -height % rows))
    tall, wide = padded.shape
    blocks = padded.reshape(tall // rows, rows, wide // columns, columns)
    scale = blocks.abs().amax(dim=(1, 3), keepdim=True) / E4M3_LARGEST
    scale = torch.where(scale > 0, scale, 1.0)
    rounded = (blocks / scale).to(torch.float8_e4m3fn).float() * scale
    return rounded.reshape(tall, wide)[:height, :width].reshape(values.shape).to(values.dtype)


def straight_through(values: Tensor, rounded: Tensor) -> Tensor:
    """Exactly `rounded`, with the gradient of `values`."""
    return rounded + (values - values.detach()) if torch.is_grad_enabled() else rounded


PRECISIONS: dict[str, Precision] = {
    "native": native,
    "unified_fp8": unified_fp8,
    "mixed_fp8": mixed_fp8,
}
