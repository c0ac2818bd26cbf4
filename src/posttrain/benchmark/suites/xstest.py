"""XSTest: 250 safe prompts that look unsafe, and 200 unsafe ones; refusals are told by rule."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import REFUSAL_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, text

FILES = ("xstest/xstest_prompts.csv",)


def read(line: Line, file: str) -> Iterator[Item]:
    """The prompt and its label, by type of prompt."""
    label, kind = text(line, "label"), text(line, "type")
    if label not in ("safe", "unsafe"):
        mend = "write `safe` or `unsafe`"
        raise DataError(Fault(f"unknown label `{label}`", line.where, "it has no meaning", mend))
    prompt = prompt_of("text", text(line, "prompt").strip(), label, f"xstest/{kind}")
    yield Item(prompt, category=kind)


SUITE = Suite(
    name="xstest",
    about=__doc__,
    source=Upstream(files=FILES, read=read),
    scorer="refusals",
    metric="appropriate",
    metrics=REFUSAL_METRICS,
    sensitive=True,
    paper="arXiv:2308.01263",
    licence="CC-BY-4.0",
    contamination="public since 2023; a rule misses refusals in other words",
)
