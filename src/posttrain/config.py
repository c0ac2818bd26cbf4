"""Configs and recipes: a stage's options, and named bundles of options for a whole graph.

Precedence, weakest first: the defaults in the code (the published values), the recipe's
`seed`, its section of the stage, its section of the task, `--overrides`, flags. Where any of
these names a `method`, its bundle stands between the defaults and the recipe.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from posttrain.errors import ConfigError, Fault, PosttrainError, accepted
from posttrain.methods import load_method
from posttrain.plugins import Family, Plugin, build, option_faults

__all__ = ["Annotated", "Family", "Field", "Plugin", "Report", "StageConfig"]


class StageConfig(BaseModel):
    """Options of a stage. Frozen; an unknown option is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shares: ClassVar[tuple[str, ...]] = ()
    """Stages whose sections of a recipe count for this one too, before its own."""

    seed: int = Field(0, ge=0, description="seed of every random choice in the stage")


class Report(BaseModel):
    """The numbers a stage returns. Scalars go to MLflow and to `metrics/<task>.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def scalars(self) -> dict[str, float]:
        """The finite-or-not numbers of the report, nested keys joined by `/`."""
        return dict(_scalars("", self.model_dump()))


def _scalars(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _scalars(f"{prefix}/{key}" if prefix else str(key), inner)
    elif isinstance(value, bool | int | float):
        yield prefix, float(value)


Config = TypeVar("Config", bound=StageConfig)


@dataclass(frozen=True)
class Recipe:
    """A recipe file, read and merged with what it extends; `sections` by task or stage name."""

    name: str
    where: str
    about: str
    seed: int | None
    sections: Mapping[str, Mapping[str, Any]]


def recipe_names() -> list[str]:
    """The recipes that ship with the package."""
    folder = resources.files("posttrain.recipes")
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def load_recipe(name: str, tasks: Mapping[str, str]) -> Recipe:
    """Read a recipe by name (shipped) or path. `tasks` maps task to stage: the legal sections."""
    path = Path(name)
    if name.endswith((".yaml", ".yml")):
        if not path.is_file():
            raise ConfigError(
                Fault("no such recipe", name, "the file is not there", "check the path")
            )
        text = path.read_text(encoding="utf-8")
    elif name in recipe_names():
        text = (resources.files("posttrain.recipes") / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise ConfigError(
            Fault(
                f"unknown recipe `{name}`",
                "--recipe",
                "no recipe of that name ships with posttrain",
                accepted(name, recipe_names()) + "; or give the path of a .yaml file",
            )
        )
    return _parse_recipe(name, text, tasks)


def _parse_recipe(name: str, text: str, tasks: Mapping[str, str]) -> Recipe:
    try:
        given = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(
            Fault("recipe is not YAML", f"{name}{line}", str(error).split("\n")[0], "mend the file")
        ) from None
    if not isinstance(given, dict):
        raise ConfigError(
            Fault("recipe is not a mapping", name, "the top level must map sections", "mend it")
        )
    about, seed = str(given.pop("about", "")), given.pop("seed", None)
    parent = load_recipe(str(given.pop("extends")), tasks) if "extends" in given else None
    faults = [
        Fault(f"unknown section `{key}`", f"{name}:{key}", "no such task", accepted(key, tasks))
        for key in given
        if key not in tasks
    ] + [
        Fault(
            f"section `{key}` is not a mapping", f"{name}:{key}", "options stand below it", "mend"
        )
        for key, section in given.items()
        if key in tasks and not isinstance(section, dict | None)
    ]
    if faults:
        raise ConfigError(*faults)
    sections = dict(parent.sections) if parent else {}
    for key, section in given.items():
        sections[key] = {**sections.get(key, {}), **(section or {})}
    if seed is None and parent:
        seed = parent.seed
    return Recipe(name, name, about, seed, sections)


def parse_overrides(text: str, tasks: Mapping[str, str]) -> Recipe | None:
    """Read `--overrides`: a JSON or YAML mapping of sections, as a recipe file has them."""
    return _parse_recipe("--overrides", text, tasks) if text.strip() else None


def resolve(
    config: type[Config],
    stage: str,
    task: str,
    layers: list[Recipe],
    flags: Mapping[str, Any],
    *,
    try_plugins: bool = True,
) -> Config:
    """Merge the layers and validate; every fault names file, section and key.

    To try a plug-in is to import its family, often torch with it: a result that the store holds
    can do without.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for layer in layers:
        if layer.seed is not None:
            merged["seed"], origin["seed"] = layer.seed, f"{layer.where}:seed"
        for section in dict.fromkeys((*config.shares, stage, task)):
            for key, value in layer.sections.get(section, {}).items():
                merged[key], origin[key] = value, f"{layer.where}:{section}.{key}"
    for key, value in flags.items():
        merged[key], origin[key] = value, f"--{key.replace('_', '-')}"
    for key, value in method_options(stage, merged, origin).items():
        if key not in merged:
            merged[key], origin[key] = value, f"method {merged['method']}:{stage}.{key}"
    try:
        resolved = config.model_validate(merged)
    except ValidationError as error:
        faults = plugin_faults(config, merged, origin)
        raise ConfigError(*_located(error, origin, stage, config), *faults) from None
    if try_plugins and (faulty := list(plugin_faults(config, merged, origin))):
        raise ConfigError(*faulty)
    return resolved


def method_options(
    stage: str, merged: Mapping[str, Any], origin: Mapping[str, str]
) -> Mapping[str, Any]:
    """The options of the method that the merged options name, if they name one."""
    if not merged.get("method"):
        return {}
    return load_method(str(merged["method"]), origin["method"]).sections.get(stage, {})


def _located(
    error: ValidationError, origin: Mapping[str, str], stage: str, config: type[StageConfig]
) -> Iterator[Fault]:
    for fault in option_faults(error, stage, config):
        key = fault.where.removeprefix(f"{stage}.").split(".")[0]
        yield Fault(fault.what, origin.get(key, fault.where), fault.why, fault.mend)


def plugin_faults(
    config: type[StageConfig], merged: Mapping[str, Any], origin: Mapping[str, str]
) -> Iterator[Fault]:
    """Every plug-in named in the merged options that cannot be built as written."""
    for name, field in config.model_fields.items():
        family = family_of(field)
        if family is None or name not in merged:
            continue
        value = merged[name]
        for given in value if isinstance(value, list) else [value]:
            try:
                build(family.members(), Plugin.model_validate(given), origin[name])
            except ValidationError:
                continue  # not a plug-in's form at all: the config's own validation tells
            except PosttrainError as error:
                yield from error.faults


def family_of(field: FieldInfo) -> Family | None:
    """The plug-in family of a config field, whether it holds one plug-in or a list."""
    marks = [*field.metadata, *(m for arg in get_args(field.annotation) for m in _marks(arg))]
    return next((mark for mark in marks if isinstance(mark, Family)), None)


def _marks(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def threads() -> int:
    """Threads for numeric work: `OMP_NUM_THREADS`, else at most two (spinning threads cost 3-10x
    on a shared machine)."""
    return int(os.environ.get("OMP_NUM_THREADS") or min(2, os.cpu_count() or 1))


def flag_value(text: str) -> Any:
    """Parse a flag's text as YAML, so that `--loss '{name: clip}'` and `--seed 3` are typed.

    An empty text stays one and leaves the option to the recipe: so a workflow engine gives it.
    """
    try:
        return yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        return text


def as_json(config: StageConfig) -> str:
    """The config as canonical JSON, for keys and manifests."""
    return json.dumps(config.model_dump(mode="json"), sort_keys=True)
