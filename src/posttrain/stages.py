"""The stages, and what can be read off the signature of each: config, ports, report.

`run(config, *, <ports>, journal)` is the one declaration; the command line, the components
and the checks are derived from it.
"""

import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.artifacts import Port
from posttrain.config import Report, StageConfig
from posttrain.errors import ConfigError, Fault, accepted
from posttrain.exposure import Exposure

STAGES: dict[str, str] = {
    "raw": "bring in or generate the raw rows",
    "base": "bring in the base policy",
    "judge": "bring in a judge that was trained and tested before",
    "curate": "raw rows -> prompts, demonstrations, preferences, held-out evaluation prompts",
    "curate_learn": "curate on many machines, first: the rows that filters learn from",
    "curate_map": "curate on many machines, then: a part of the shards",
    "curate_reduce": "curate on many machines, last: what needs all the rows",
    "select": "choose rows of a curated set: rm_5k7, one_shot, sft, rl_prompts, eval",
    "sft": "supervised fine-tuning on demonstrations",
    "reward_model": "train a judge on preferences and test it before anybody may use it",
    "reject": "rejection sampling: N completions a prompt, keep the good ones",
    "rl": "reinforcement learning with verifiable or judged rewards",
    "best_of_n": "one pass at N_max: pass@k, majority@k and judge@k for every smaller N",
    "benchmark": "score a policy on suites",
    "gate": "compare with the champion; promote, refuse or ask for a look",
    "report": "one HTML page and summary.json",
}

TASKS: dict[str, str] = {
    **{name: name for name in STAGES},
    "rejected_sft": "sft",
    "benchmark_base": "benchmark",
    "benchmark_sft": "benchmark",
    "benchmark_rejected_sft": "benchmark",
    "benchmark_rl": "benchmark",
    "rm_5k7": "select",
    "one_shot": "select",
    "sft_set": "select",
    "rl_prompts": "select",
    "eval_set": "select",
}
"""Task -> stage: a graph may run one stage several times, each with a section of its own."""


@dataclass(frozen=True)
class PortParameter:
    """A path parameter of `run`."""

    name: str
    port: Port
    required: bool
    many: bool


@dataclass(frozen=True)
class Stage:
    """A stage as its signature declares it, with its optional module functions.

    `still_holds(outputs, config)` says why a stored result no longer holds (the world outside
    the digests changed); `preflight(config)` yields what would fail, before any work;
    `announce(outputs, config, environment)` tells people of a new result and returns a line on
    whether that worked, or nothing; `exposure(config, report)` says which tests the data were
    checked against, where they begin here. A module with `READS_EXPOSURE` reads that of its inputs,
    so that it runs again when it alone has changed.
    """

    name: str
    run: Callable[..., Report]
    config: type[StageConfig]
    ports: tuple[PortParameter, ...]
    still_holds: Callable[[Mapping[str, Path], Any], str | None] | None
    preflight: Callable[[Any], Iterable[Fault]] | None
    announce: Callable[[Mapping[str, Path], Any, Mapping[str, str]], str] | None = None
    exposure: Callable[[Any, Mapping[str, Any]], Exposure | None] | None = None
    reads_exposure: bool = False

    @property
    def inputs(self) -> tuple[PortParameter, ...]:
        return tuple(p for p in self.ports if not p.port.output)

    @property
    def outputs(self) -> tuple[PortParameter, ...]:
        return tuple(p for p in self.ports if p.port.output)


def load_stage(name: str) -> Stage:
    """Import one stage's module and read its signature."""
    if name not in STAGES:
        raise ConfigError(
            Fault(
                f"unknown stage `{name}`", "command line", "no such stage", accepted(name, STAGES)
            )
        )
    module = importlib.import_module(f"posttrain.{name}.stage")
    hints = typing.get_type_hints(module.run, include_extras=True)
    parameters = inspect.signature(module.run).parameters
    config = hints[next(iter(parameters))]
    ports = tuple(
        PortParameter(
            parameter,
            port,
            required=parameters[parameter].default is inspect.Parameter.empty,
            many="Sequence" in str(hint),
        )
        for parameter, hint in hints.items()
        for port in [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Port)]
    )
    return Stage(
        name,
        module.run,
        config,
        ports,
        getattr(module, "still_holds", None),
        getattr(module, "preflight", None),
        getattr(module, "announce", None),
        getattr(module, "exposure", None),
        getattr(module, "READS_EXPOSURE", False),
    )


def describe(value: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(value) or "").split("\n", 1)[0]
