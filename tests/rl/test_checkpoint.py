"""Checkpoints come back bit for bit, and a damaged one gives way to the one before."""

from pathlib import Path

import pytest
import torch

from posttrain.rl.checkpoint import Checkpoint, complete, load_checkpoint, save_checkpoint


def checkpoint(step: int) -> Checkpoint:
    tensors = {"weight/a": torch.full((3,), 0.1 * step), "moment/0/step": torch.tensor(float(step))}
    return Checkpoint(step, tensors, {"cursor": step, "rewards": [0.1, 1 / 3]})


def test_round_trip_and_two_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, checkpoint(step))
    assert [path.name for path in complete(tmp_path)] == [
        "checkpoint-00000002",
        "checkpoint-00000010",
    ]
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.state) == (10, checkpoint(10).state)
    for name, tensor in checkpoint(10).tensors.items():
        assert torch.equal(found.tensors[name], tensor)


@pytest.mark.parametrize("file", ["state.json", "tensors.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, file: str, damage: str
) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    save_checkpoint(tmp_path, checkpoint(2))
    path = tmp_path / "checkpoint-00000002" / file
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(content) if damage == "flip" else bytes(content[:40]))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1


def test_a_half_written_checkpoint_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-00000003.partial").mkdir()
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, checkpoint(3))
    assert load_checkpoint(tmp_path) is not None
