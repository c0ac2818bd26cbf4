"""An arena file: which methods meet, on which tasks and seeds, under what budget."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from posttrain.cli import filled
from posttrain.config import Recipe
from posttrain.errors import ConfigError, Fault
from posttrain.methods import load_method
from posttrain.plugins import option_faults
from posttrain.stages import TASKS

Sections = Mapping[str, Mapping[str, Any]]

START = ("raw", "base", "curate", "sft", "reject")
"""The tasks whose results every method begins with."""

TEACHER = ("raw", "curate")
"""Those that make a teacher's demonstrations; then nobody needs the start's own, by `reject`."""


class Ground(BaseModel):
    """A task of the arena: options laid over the recipe's, and the suite that is scored.

    `only`, or all methods but `without`, meet here. `teacher`: options of `raw` and `curate` over
    the ground's own; the demonstrations that they make are what a method may be shown, in place of
    the start's own verified answers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    options: Sections = {}
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    teacher: Sections = {}


class Arena(BaseModel):
    """What is compared. `rollouts` is the budget: completions that a method may draw afresh;
    `seconds` instead bounds the time of its steps, and then no two runs are quite alike.
    `samples`: answers to each item of the suite that is scored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str = ""
    recipe: str = "demo"
    methods: Mapping[str, Mapping[str, Any]] = Field(min_length=1)
    baseline: str = "grpo"
    grounds: Mapping[str, Ground] = Field(min_length=1)
    seeds: list[int] = Field([0, 1, 2], min_length=1)
    rollouts: int = Field(0, ge=0)
    seconds: float = Field(0, ge=0)
    samples: int = Field(2, ge=1)
    options: Sections = {}

    @model_validator(mode="before")
    @classmethod
    def _methods_by_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("methods"), list):
            return given | {"methods": {str(name): {} for name in given["methods"]}}
        return given

    @model_validator(mode="after")
    def _one_budget_and_a_baseline(self) -> Self:
        if bool(self.rollouts) == bool(self.seconds):
            raise ValueError("give one budget: rollouts or seconds")
        if self.baseline not in self.methods:
            raise ValueError(f"the baseline `{self.baseline}` is not among the methods")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed is named twice")
        for name, ground in self.grounds.items():
            unknown = {*ground.only, *ground.without} - self.methods.keys()
            if unknown:
                raise ValueError(f"the ground `{name}` names {sorted(unknown)}, no methods of ours")
            if self.baseline not in self.meeting(name):
                raise ValueError(f"the baseline `{self.baseline}` does not meet on `{name}`")
        return self

    def meeting(self, ground: str) -> list[str]:
        """The methods that are compared on a ground."""
        only, without = self.grounds[ground].only, self.grounds[ground].without
        return [m for m in self.methods if (not only or m in only) and m not in without]


def read_arena(path: Path) -> Arena:
    """Read the file; raise ConfigError with every fault found."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        arena = Arena.model_validate(given)
    except OSError as error:
        raise ConfigError(
            Fault("no arena file", str(path), str(error.strerror), "check the path")
        ) from None
    except yaml.YAMLError as error:
        why = str(error).split("\n")[0]
        raise ConfigError(Fault("the arena is not YAML", str(path), why, "mend the file")) from None
    except ValidationError as error:
        raise ConfigError(*option_faults(error, str(path), Arena)) from None
    for name, options in arena.methods.items():
        load_method(str(options.get("method", name)), f"{path}:methods.{name}")
    unknown = [
        f"{where}.{key}"
        for where, sections in (
            ("options", arena.options),
            *((f"grounds.{name}.options", g.options) for name, g in arena.grounds.items()),
            *((f"grounds.{name}.teacher", g.teacher) for name, g in arena.grounds.items()),
        )
        for key in sections
        if key not in TASKS
    ]
    if unknown:
        raise ConfigError(
            *(
                Fault("no such task", f"{path}:{key}", "sections are tasks", "see `posttrain -h`")
                for key in unknown
            )
        )
    return arena


def layer(name: str, sections: Sections) -> Recipe:
    """Sections as a layer of options, with the placeholders of recipes filled in."""
    return filled(Recipe(name, name, "", None, sections))
