"""Benchmark suites, one declaration per file. To add one, write the file and a line below."""

from collections.abc import Callable

from posttrain.benchmark.suites import (
    arithmetic,
    bbh,
    countdown,
    gsm8k,
    held_out,
    knights_knaves,
    math,
    mawps,
    mmlu_stem,
    svamp,
)
from posttrain.benchmark.suites.suite import Item, Place, Suite, choice

__all__ = ["CHOICES", "SUITES", "Item", "Place", "Suite"]

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE
    for module in (
        arithmetic,
        knights_knaves,
        countdown,
        held_out,
        gsm8k,
        mawps,
        svamp,
        math,
        mmlu_stem,
        bbh,
    )
}

CHOICES: dict[str, Callable[..., Suite]] = {name: choice(suite) for name, suite in SUITES.items()}
"""The suites as plug-ins: `gsm8k`, or `{name: gsm8k, limit: 200}`."""
