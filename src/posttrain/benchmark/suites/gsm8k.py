"""Grade-school maths, the test set of 1,319."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Hub, Upstream, held_out
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.math_files import gsm8k
from posttrain.raw.sources.source import Line


def read(line: Line, file: str) -> Iterator[Item]:
    """The test file's rows: question and number."""
    return held_out(gsm8k(line, file))


SUITE = Suite(
    name="gsm8k",
    about=__doc__,
    source=Upstream(
        files=("gsm8k/test.jsonl",),
        read=read,
        hub=Hub("openai/gsm8k", "main", "test", "740312add88f781978c0658806c59bc2815b9866"),
    ),
    paper="arXiv:2110.14168",
    licence="MIT",
    contamination="public since 2021, found in many training sets; arXiv:2405.00332 measures it",
)
