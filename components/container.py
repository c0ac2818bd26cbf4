"""The image that a stage's component runs in; chosen when a graph is compiled.

`POSTTRAIN_IMAGE_CPU`, `_TRAIN` or `_ROLLOUT` names that of one class of pool, `POSTTRAIN_IMAGE`
that of all: by digest (`NAME@sha256:...`) in whatever is meant to stay, for a tag moves.
"""

import os

POOLS = {
    "sft": "train",
    "reward_model": "train",
    "rl": "train",
    "reject": "rollout",
    "best_of_n": "rollout",
    "benchmark": "rollout",
}
"""Stage -> class of node pool; a stage that is not named here runs on `cpu`."""

TARGETS = {"cpu": "eval", "train": "train", "rollout": "train"}
"""Class of node pool -> target of the Containerfile."""


def pool_of(stage: str) -> str:
    """The class of node pool that a stage runs on."""
    return POOLS.get(stage, "cpu")


def image_of(stage: str) -> str:
    """The image reference of a stage."""
    pool = pool_of(stage)
    for variable in (f"POSTTRAIN_IMAGE_{pool.upper()}", "POSTTRAIN_IMAGE"):
        if os.environ.get(variable):
            return os.environ[variable]
    return f"localhost/posttrain:{TARGETS[pool]}"
