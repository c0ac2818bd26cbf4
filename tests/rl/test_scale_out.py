"""Two processes learn what one would: the same metrics, gradients and weights."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed

from posttrain.artifacts import write_rows
from posttrain.engines.likelihood import Row
from posttrain.journal import Journal
from posttrain.policies import load_policy
from posttrain.records import Prompt
from posttrain.rewards import REWARDS
from posttrain.rl.config import RLConfig
from posttrain.rl.crew import Place, place, share
from posttrain.rl.experience import Lesson
from posttrain.rl.follow import dismiss, follow
from posttrain.rl.hooks import UpdateFacts
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES
from posttrain.rl.rollout import Rollout
from posttrain.rl.stage import run

SHARDINGS = ("none", "fsdp2")
OPTIONS = {
    "one_update": {"entropy_bonus": 0.01, "kl_coefficient": 0.1},
    "several_updates": {"ppo_epochs": 2, "minibatches": 2, "gradient_checkpointing": True},
    "lora": {"lora_rank": 2, "old_logps": "engine"},
    "more_processes_than_lessons": {"minibatches": 8},
    "shards": {"sharding": "fsdp2", "entropy_bonus": 0.01, "kl_coefficient": 0.1},
    "shards_measured_and_recomputed": {
        "sharding": "fsdp2",
        "gradient_checkpointing": True,
        "ppo_epochs": 2,
        "old_logps": "recompute",
        "minibatches": 8,
    },
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
    whole_stages(tiny_policy, folder / "1")
    del REWARDS["low_tokens"]
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


def low_tokens(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """A reward a random policy can earn: the share of its tokens with ids below 384."""
    return [sum(t < 384 for t in r.tokens) / max(1, len(r.tokens)) for r in rollouts]


def whole_stages(policy: Path, out: Path) -> None:
    """The stage, with the weights whole in each process and shared out."""
    for sharding in SHARDINGS:
        whole_stage(policy, out / sharding, sharding)


def whole_stage(policy: Path, out: Path, sharding: str) -> None:
    """The stage, of which all processes but the first only follow the learner."""
    REWARDS["low_tokens"] = low_tokens
    options = {"steps": 3, "prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6}
    options |= {"sharding": sharding}
    config = RLConfig.model_validate(
        options | {"learning_rate": 1e-4, "rewards": ["low_tokens"], "checkpoint_every": 1}
    )
    if place().rank:
        follow(config, policy)
        return
    write_rows(out / "prompts", [lesson.rollout.prompt for lesson in lessons()[::3]])
    for attempt in ("killed", "resumed"):
        given = config.model_copy(update={"max_rollouts": 8 if attempt == "killed" else 0})
        paths = {"policy": policy, "prompts": out / "prompts", "trained": out / attempt}
        run(given, **paths, journal=Journal(out / "journal"))
    dismiss()


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_the_stage_resumes_and_ends_in_the_same_weights(outcomes: Path, sharding: str) -> None:
    alone, both = (
        load_policy(outcomes / n / sharding / "resumed").model.state_dict() for n in "12"
    )
    cut = load_policy(outcomes / "2" / sharding / "killed").model.state_dict()
    assert any(not torch.equal(alone[name], cut[name]) for name in cut)
    for name, weight in alone.items():
        torch.testing.assert_close(both[name], weight, atol=1e-5, rtol=1e-4, msg=name)


def test_the_command_line_under_torchrun(
    tiny_policy: Path, tmp_path: Path, seal: Callable[[Path, str], object]
) -> None:
    write_rows(tmp_path / "prompts", [lesson.rollout.prompt for lesson in lessons()[::3]])
    seal(tmp_path / "prompts", "Prompt")
    stage = f"rl --policy {tiny_policy} --prompts {tmp_path}/prompts --steps 1 --group-size 2"
    files = f"--trained {tmp_path}/out --store {tmp_path}/store --run-folder {tmp_path}/run"
    sizes = "--prompts-per-step 2 --max-new-tokens 4 --tracking off"

    def torchrun(arguments: str) -> int:
        start = "-m torch.distributed.run --standalone --nproc-per-node 2 -m posttrain.cli"
        command = [sys.executable, *f"{start} {stage} {files} {arguments}".split()]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(command, timeout=120, check=False, **quiet).returncode

    assert torchrun(sizes) == 0
    assert (tmp_path / "out/manifest.json").is_file()
    assert torchrun(f"{sizes} --advantage gpro") != 0


if __name__ == "__main__":
    from accelerate import PartialState

    PartialState(cpu=True)
    for each in OPTIONS:
        outcome(Path(sys.argv[1]), Path(sys.argv[2]), each)
    whole_stages(Path(sys.argv[1]), Path(sys.argv[2]))
    distributed.destroy_process_group()
