"""Two processes learn what one would: the same metrics, gradients and weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed

from posttrain.engines.likelihood import Row
from posttrain.records import Prompt
from posttrain.rl.config import RLConfig
from posttrain.rl.crew import Place, place, share
from posttrain.rl.experience import Lesson
from posttrain.rl.hooks import UpdateFacts
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES
from posttrain.rl.rollout import Rollout

OPTIONS = {
    "one_update": {"entropy_bonus": 0.01, "kl_coefficient": 0.1},
    "several_updates": {"ppo_epochs": 2, "minibatches": 2, "gradient_checkpointing": True},
    "lora": {"lora_rank": 2, "old_logps": "engine"},
    "more_processes_than_lessons": {"minibatches": 8},
}


def lessons() -> list[Lesson]:
    """Eight lessons on three prompts: one silent, one empty, one with words of the environment."""
    found = []
    for i in range(8):
        number = i // 3
        text = f"{number + 2} + {number} = ?"
        prompt = Prompt(id=f"{number}", text=text, answer="1", task="arithmetic", source="test")
        tokens = tuple(range(20 + i, 20 + i + (0 if i == 4 else 2 + 3 * number)))
        acted = tuple(t % 3 > 0 for t in tokens) if i == 7 else ()
        rollout = Rollout(prompt, "", tokens, (-6.6,) * len(tokens), False, acted=acted)
        found.append(Lesson(rollout, number, ((-1.0) ** i * (1 + i / 8),), i != 1))
    return found


def spread(facts: UpdateFacts, /) -> float:
    """A factor of the learning rate to which every completion has a say."""
    return float(facts.log_weights_B.exp().mean().sqrt())


def outcome(policy: Path, out: Path, name: str) -> None:
    """Learn and write metrics, weights, first moments (which are the gradients) and log-probs."""
    config = RLConfig.model_validate(
        {"max_new_tokens": 8, "micro_batch_tokens": 24, "seed": 3} | OPTIONS[name]
    )
    learner = Learner(config, policy, POLICY_LOSSES["clip"], [spread])
    metrics = learner.learn([lessons(), lessons()[2:]], 1e-3)
    tensors = {name: tensor.detach().clone() for name, tensor in learner.tensors().items()}
    numbers = {f"metric/{name}": torch.tensor(value) for name, value in metrics.items()}
    save_file(tensors | numbers, out / f"{name}-{place().rank}.safetensors")


def two_processes(policy: Path, out: Path) -> None:
    """This file as a program, under torchrun."""
    out.mkdir()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *command, __file__, str(policy), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def outcomes(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes found, and this one."""
    folder = tmp_path_factory.mktemp("scale_out")
    two_processes(tiny_policy, folder / "2")
    (folder / "1").mkdir()
    for name in OPTIONS:
        outcome(tiny_policy, folder / "1", name)
    return folder


@pytest.mark.parametrize("name", OPTIONS)
def test_two_processes_learn_what_one_does(outcomes: Path, name: str) -> None:
    alone = load_file(outcomes / f"1/{name}-0.safetensors")
    first, second = (load_file(outcomes / f"2/{name}-{rank}.safetensors") for rank in (0, 1))
    assert alone.keys() == first.keys() == second.keys()
    assert any(key.endswith("exp_avg") and tensor.any() for key, tensor in alone.items())
    for key, tensor in alone.items():
        # Adam's first step is a ratio, of nearly nothing where a gradient is rounding.
        tolerance = 1e-5 if key.startswith("weight/") else 1e-6
        torch.testing.assert_close(first[key], tensor, atol=tolerance, rtol=1e-5, msg=key)
        assert torch.equal(first[key], second[key]), key


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_every_row_is_somebodys_and_the_shares_are_alike(size: int) -> None:
    rows = [Row((i // 4,), tuple(range(i % 5)), i) for i in range(16)]
    shares = [share(rows, Place(rank, size)) for rank in range(size)]
    assert sorted(row.place for mine in shares for row in mine) == [*range(16)]
    costs = [sum(1 + len(row.response) for row in mine) for mine in shares]
    assert max(costs) - min(costs) <= 2 * 5


if __name__ == "__main__":
    for each in OPTIONS:
        outcome(Path(sys.argv[1]), Path(sys.argv[2]), each)
    distributed.destroy_process_group()
