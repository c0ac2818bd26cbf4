"""Plug-ins: functions (or small classes) in a dict; their keyword-only parameters are the options.

In YAML a plug-in is its name, `advantage: rloo`, or its name with options,
`loss: {name: clip, clip_high: 0.28}`. Nothing is declared twice: `build` makes
the schema of the options from the signature.
"""

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)

from posttrain.errors import ConfigError, Fault, accepted


class Plugin(BaseModel):
    """The choice of one member of a family, with the options that depart from its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_yaml(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if isinstance(given, Mapping) and "name" in given and "options" not in given:
            return {
                "name": given["name"],
                "options": {k: v for k, v in given.items() if k != "name"},
            }
        return given

    @model_serializer
    def _to_yaml(self) -> Any:
        return {"name": self.name, **self.options} if self.options else self.name


@dataclass(frozen=True)
class Family:
    """Marks a config field with the dict its plug-in comes from: `module:DICT`."""

    path: str

    def members(self) -> Mapping[str, Callable[..., Any]]:
        module, name = self.path.split(":")
        members: Mapping[str, Callable[..., Any]] = getattr(importlib.import_module(module), name)
        return members


def options_of(member: Callable[..., Any]) -> type[BaseModel]:
    """The pydantic model of a plug-in's keyword-only parameters."""
    target = member.__init__ if inspect.isclass(member) else member
    hints = typing.get_type_hints(target, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if p.default is inspect.Parameter.empty else p.default)
        for name, p in inspect.signature(target).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return create_model(f"{member.__name__}_options", __config__=config, **fields)


Member = typing.TypeVar("Member", bound=Callable[..., Any])


def build(family: Mapping[str, Member], plugin: Plugin, where: str = "plug-in") -> Member:
    """Return the chosen member with its options bound; raise `ConfigError` on any misfit.

    `where` names the key in the config for the message.
    """
    if plugin.name not in family:
        raise ConfigError(
            Fault(
                f"unknown plug-in `{plugin.name}`",
                where,
                "no member of the family has that name",
                accepted(plugin.name, family),
            )
        )
    member = family[plugin.name]
    schema = options_of(member)
    try:
        options = schema.model_validate(plugin.options)
    except ValidationError as error:
        raise ConfigError(*option_faults(error, f"{where}.{plugin.name}", schema)) from None
    given = {name: getattr(options, name) for name in options.model_fields_set}
    return typing.cast(Member, functools.partial(member, **given) if given else member)


def option_faults(error: ValidationError, where: str, schema: type[BaseModel]) -> Iterator[Fault]:
    """Turn pydantic's findings into faults that name the key and what it accepts."""
    for finding in error.errors():
        key = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            yield Fault(
                f"unknown option `{key}`",
                f"{where}.{key}",
                "there is no such option",
                accepted(key, schema.model_fields),
            )
        else:
            yield Fault(
                f"bad value for `{key}`: {finding['input']!r}",
                f"{where}.{key}",
                finding["msg"],
                "give a value of the stated type and range",
            )
