"""What keeps vLLM and the process that it lives in from disturbing each other."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

SETTINGS = {
    # Weights are written into the engine's own model: it must live in this process.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Else the trainer's threads would be bound to one core along with vLLM's.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""What vLLM reads from the environment alone, unless it is set there already."""


def with_settings() -> None:
    """Set what is not set yet; to be called before vLLM is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def save_shape(model: Any, folder: Path) -> None:
    """Write the model's config alone, for vLLM to build it from."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = deepcopy(whole.config)
    config.architectures = [type(whole).__name__]
    config.save_pretrained(folder)


def keep_groups() -> None:
    """Let the process groups outlive an engine: they are the process's, and another engine of the
    same process that is still in use would go down with them."""
    from vllm.v1.engine import core

    core.cleanup_dist_env_and_memory = give_memory_back


def give_memory_back(shutdown_ray: bool = False) -> None:
    """What is left to do when an engine goes: other programs may want the GPU's memory."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def unpacked() -> Iterator[None]:
    """Have vLLM on a CPU compute with plain weights: packed ones, of which it keeps no other copy,
    cannot be written to, and with tied embeddings go stale without an error."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    packing = utils.dispatch_cpu_unquantized_gemm
    utils.dispatch_cpu_unquantized_gemm = plain
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = packing


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put back what vLLM changes for the whole process as it starts: seeds, and torch's threads."""
    python, legacy = random.getstate(), np.random.get_state()
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)
            torch.set_num_threads = set_threads
            set_threads(threads)
