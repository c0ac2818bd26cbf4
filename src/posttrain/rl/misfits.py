"""Choices that do not go together, each with the two options and why."""

from collections.abc import Iterator

from posttrain.errors import Fault
from posttrain.rl.config import RLConfig


def misfits(config: RLConfig, *, has_demonstrations: bool) -> list[Fault]:
    """Every misfit among the options of `rl`."""
    return [*_misfits(config, has_demonstrations)]


def _misfits(config: RLConfig, has_demonstrations: bool) -> Iterator[Fault]:
    if config.strategy.name == "external" and not has_demonstrations:
        yield Fault(
            "no demonstrations",
            "rl.strategy",
            "`external` puts worked solutions among the rollouts",
            "give `--demonstrations` with solutions of the prompts, or take another strategy",
        )
