"""Judges that are policies: how a folder becomes one, and who writes for it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.artifacts import content_files
from posttrain.engines import ENGINES
from posttrain.plugins import Plugin, build

if TYPE_CHECKING:
    from posttrain.reward_model.generative.writers import EngineWriter
    from posttrain.reward_model.kinds import Made, Work


def bring(work: "Work") -> "Made":
    """Copy the policy's files; all numbers are zero, for nothing was learnt."""
    from posttrain.reward_model.kinds import Made

    for name in content_files(work.policy):
        target = work.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.policy / name, target)
    return Made()


def policy_writer(engine: Plugin) -> Callable[[Path], "EngineWriter"]:
    """What makes a writer of a folder; ConfigError at once where the engine cannot be built."""
    make = build(ENGINES, engine, "reward_model.kind.engine")

    def of(folder: Path) -> "EngineWriter":
        from posttrain.policies import load_policy
        from posttrain.reward_model.generative.writers import EngineWriter

        policy = load_policy(folder)
        return EngineWriter(policy, make(policy))

    return of
