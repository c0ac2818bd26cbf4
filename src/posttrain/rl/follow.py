"""The stage `rl` under `torchrun`: process 0 runs it, the others update the policy with it.

Process 0 alone rolls out, scores, logs and writes; its lessons are broadcast.
"""

from pathlib import Path

import torch
from accelerate import PartialState

from posttrain.errors import PosttrainError
from posttrain.rl.config import RLConfig
from posttrain.rl.crew import first_says
from posttrain.rl.learner import DONE, Learner
from posttrain.rl.parts import build_parts


def follow(config: RLConfig, policy: Path) -> None:
    """Update the policy as process 0 says, until it is done."""
    try:
        parts = build_parts(config, has_judge=True, has_demonstrations=True)
        Learner(config, policy, parts.loss, parts.hooks, parts.precision).follow()
    except PosttrainError:
        # Process 0 has found the same fault, and says so; nobody leaves before it does.
        dismiss()


def dismiss() -> None:
    """End what `follow` does in the other processes, also if nothing was to be done."""
    PartialState(cpu=not torch.cuda.is_available())
    first_says(DONE)
