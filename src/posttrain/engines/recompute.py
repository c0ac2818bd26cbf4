"""Gradient checkpointing behind a shared prefix, which Hugging Face's own would forget.

Its checkpointed layers drop the key-value cache, because a layer that runs again would append to
it twice. Here each run of a layer gets the cache as it was.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

Context = Callable[[], AbstractContextManager[Any]]


def recomputed(function: Callable[..., Any], context: Context, *args: Any, **options: Any) -> Any:
    """Call the function; the backward pass calls it again, in `context`, for what it needs."""
    return checkpoint(
        function,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), context()),
        **options,
    )


@contextmanager
def recomputed_layers(model: Any, context: Context) -> Iterator[None]:
    """Inside, the model's layers keep nothing for the backward pass but their inputs.

    The cache that the model is given is read and stays as it is.
    """
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = partial(recomputed, partial(with_own_cache, layer.forward), context)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def with_own_cache(forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run the layer on a copy of the cache; the tensors are shared, and none is written to."""
    held = options.get("past_key_values")
    if held is not None:
        mine = copy.copy(held)
        mine.layers = [copy.copy(layer) for layer in held.layers]
        options["past_key_values"] = mine
    return forward(*args, **options)
