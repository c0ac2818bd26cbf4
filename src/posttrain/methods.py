"""Methods: named bundles of a stage's options, each with its paper.

`method: dapo` in a section lays the bundle beneath whatever the recipe and the flags say, so a
tiny run keeps its own sizes and rates and takes the rest from the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from posttrain.errors import ConfigError, Fault, accepted

PACKAGE = "posttrain.recipes.methods"


@dataclass(frozen=True)
class Method:
    """A bundle file: what it is, where it was published, and its options by stage."""

    name: str
    about: str
    paper: str
    sections: Mapping[str, Mapping[str, Any]]


def method_names(stage: str) -> list[str]:
    """The methods that say something of a stage."""
    return [name for name in _files() if stage in load_method(name).sections]


def load_method(name: str, where: str = "method") -> Method:
    """Read a bundle; raise ConfigError when there is none of that name."""
    if name not in _files():
        raise ConfigError(
            Fault(
                f"unknown method `{name}`",
                where,
                "no bundle of that name ships with posttrain",
                accepted(name, _files()),
            )
        )
    text = (resources.files(PACKAGE) / f"{name}.yaml").read_text(encoding="utf-8")
    given = yaml.safe_load(text)
    about, paper = str(given.pop("about")), str(given.pop("paper"))
    return Method(name, about, paper, given)


def _files() -> list[str]:
    folder = resources.files(PACKAGE)
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )
