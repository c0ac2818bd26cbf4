"""A rehearsal: the compiled graph with the user's own recipe and next to no work in it, so that
what would break in hour five breaks in minute two.

The result is `--overrides` for the same graph. Placeholders stay placeholders: the overrides may be
made on a laptop and used in a pod.
"""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import yaml

from posttrain.config import StageConfig, family_of, load_recipe, parse_overrides, resolve
from posttrain.plugins import Family, Plugin, options_of
from posttrain.stages import TASKS, load_stage

SUFFIX = "-rehearsal"
Options = dict[str, Any]


def rehearsal_overrides(recipe: str, overrides: str, tasks: Iterable[str]) -> str:
    """The overrides, as JSON, by which the tasks do next to nothing of what the recipe says.

    Raises ConfigError for a recipe or overrides that are wrong.
    """
    text = (resources.files("posttrain.rehearsal") / "rehearsal.yaml").read_text(encoding="utf-8")
    shipped = yaml.safe_load(text)
    laid_over = parse_overrides(overrides, TASKS)
    layers = [load_recipe(recipe, TASKS), *([laid_over] if laid_over else [])]
    sections = {
        name: dict(given) for name, given in (laid_over.sections if laid_over else {}).items()
    }
    for task in tasks:
        stage = load_stage(TASKS[task])
        config = resolve(stage.config, stage.name, task, layers, {})
        own: Options = {}
        for name in dict.fromkeys((stage.name, task)):
            own |= cut(config, shipped["at_most"].get(name) or {})
        for name in dict.fromkeys((stage.name, task)):
            own |= shipped["instead"].get(name) or {}
        if own:
            sections[task] = sections.get(task, {}) | own
    seed = {} if laid_over is None or laid_over.seed is None else {"seed": laid_over.seed}
    return json.dumps(seed | sections, sort_keys=True)


def cut(config: StageConfig, limits: Mapping[str, Any]) -> Options:
    """The options of a stage that exceed their limits, with the limits in their place."""
    found: Options = {}
    for name, limit in limits.items():
        value = getattr(config, name)
        if isinstance(limit, Mapping):
            family = family_of(type(config).model_fields[name])
            assert family is not None
            if isinstance(value, Plugin):
                found[name] = smaller(family, value, limit)
            elif value:
                found[name] = [smaller(family, plugin, limit) for plugin in value]
        elif not value or value > limit:
            found[name] = limit
    return found


def smaller(family: Family, plugin: Plugin, limits: Mapping[str, int]) -> Any:
    """A plug-in with the options that it has and that exceed the limits cut; a `limit` of 0 is
    none, any other 0 is nothing at all."""
    fields = options_of(family.members()[plugin.name]).model_fields
    options = dict(plugin.options)
    for name, limit in limits.items():
        if name not in fields:
            continue
        value = options.get(name, fields[name].default)
        if value is None or value > limit or (name == "limit" and not value):
            options[name] = limit
    return {"name": plugin.name, **options} if options else plugin.name
