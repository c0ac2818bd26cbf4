"""Checkpoints: tensors in safetensors, the rest in JSON, complete only when renamed into place.

The newest two are kept. One whose digest does not match is passed over for the one before it.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.artifacts import file_digest
from posttrain.durable import rename, settle

KEPT = 2
_TENSORS = "tensors.safetensors"
_STATE = "state.json"


class Checkpoint(NamedTuple):
    """`step`: how many steps are done. `state` is plain JSON."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write one checkpoint and delete all but the newest `KEPT`."""
    target = folder / f"checkpoint-{checkpoint.step:08d}"
    partial = folder / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    save_file(tensors, partial / _TENSORS)
    body = json.dumps(checkpoint.state, sort_keys=True)
    tensor_digest = file_digest(partial / _TENSORS)
    digests = {"state": hashlib.sha256(body.encode()).hexdigest(), "tensors": tensor_digest}
    (partial / _STATE).write_text(json.dumps({"digests": digests, "body": body}), encoding="utf-8")
    settle(partial)
    shutil.rmtree(target, ignore_errors=True)
    rename(partial, target)
    for old in complete(folder)[:-KEPT]:
        shutil.rmtree(old)


def complete(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    return sorted(folder.glob("checkpoint-[0-9]*"))


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint, or None. Damaged ones are deleted."""
    for path in reversed(complete(folder)):
        found = _read(path)
        if found is not None:
            return found
        shutil.rmtree(path)
    return None


def _read(path: Path) -> Checkpoint | None:
    try:
        written = json.loads((path / _STATE).read_text(encoding="utf-8"))
        body, digests = written["body"], written["digests"]
        sound = (
            hashlib.sha256(body.encode()).hexdigest() == digests["state"]
            and file_digest(path / _TENSORS) == digests["tensors"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not sound:
        return None
    step = int(path.name.rpartition("-")[2])
    return Checkpoint(step, load_file(path / _TENSORS), json.loads(body))
