"""Weights on disk, for another process to take over while training goes on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
"""Weights that stay on disk: the newest, and the ones before, which somebody may be reading."""


def publish(weights: "Mapping[str, Tensor]", folder: Path, version: int) -> None:
    """Write the weights of a version, whole or not at all; delete all but the newest `KEPT`."""
    from safetensors.torch import save_file

    target = folder / f"{version:08d}.safetensors"
    partial = target.with_suffix(".partial")
    save_file({name: w.detach().cpu().contiguous() for name, w in weights.items()}, partial)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.rename(target)
    for old in published(folder)[:-KEPT]:
        old.unlink()


def published(folder: Path) -> list[Path]:
    """The weights that are there, oldest first."""
    return sorted(folder.glob("*.safetensors"))


def take_newest(weights: "Mapping[str, Tensor]", folder: Path, least: int, held: int) -> int:
    """Copy the newest published weights into these unless `held` are; returns their version."""
    import torch
    from safetensors.torch import load_file

    while True:
        newest = published(folder)[-1]
        version = int(newest.stem)
        if version < least:
            raise RuntimeError(f"the newest weights in {folder} are {version}, not {least}")
        if version == held:
            return held
        try:
            tensors = load_file(newest)
        except FileNotFoundError:
            # Two newer ones were published in between.
            continue
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(tensors[name])
        return version
