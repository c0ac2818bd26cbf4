"""Benchmark suites, one declaration per file. To add one, write the file and a line below."""

from collections.abc import Callable

from posttrain.benchmark.suites import (
    abstention,
    aqua,
    arena_hard,
    arithmetic,
    bbh,
    bugfix,
    countdown,
    eifbench,
    gsm8k,
    held_out,
    humaneval,
    ifeval,
    knights_knaves,
    livebench,
    math,
    mawps,
    mbpp,
    mmlu_stem,
    mt_bench,
    personagym,
    prmbench,
    processbench,
    svamp,
    truthfulqa,
    usb,
    xstest,
)
from posttrain.benchmark.suites.harness import lm_eval
from posttrain.benchmark.suites.suite import Item, Place, Suite, choice

__all__ = ["CHOICES", "SUITES", "Item", "Place", "Suite"]

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE
    for module in (
        arithmetic,
        knights_knaves,
        countdown,
        bugfix,
        held_out,
        gsm8k,
        mawps,
        svamp,
        math,
        mmlu_stem,
        bbh,
        aqua,
        truthfulqa,
        ifeval,
        xstest,
        usb,
        prmbench,
        processbench,
        eifbench,
        personagym,
        abstention,
        livebench,
        mt_bench,
        arena_hard,
        humaneval,
        mbpp,
    )
}

CHOICES: dict[str, Callable[..., Suite]] = {
    **{name: choice(suite) for name, suite in SUITES.items()},
    "lm_eval": lm_eval,
}
"""The suites as plug-ins: `gsm8k`, or `{name: gsm8k, limit: 200}`; `lm_eval` is any task of it."""
