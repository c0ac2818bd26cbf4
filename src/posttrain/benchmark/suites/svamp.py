"""One-step word problems with varied wording and irrelevant numbers."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Hub, Upstream, held_out
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.math_files import svamp
from posttrain.raw.sources.source import Line


def read(line: Line, file: str) -> Iterator[Item]:
    """Body and question, and the number."""
    return held_out(svamp(line, file))


SUITE = Suite(
    name="svamp",
    about=__doc__,
    source=Upstream(
        files=("svamp/test.jsonl",),
        read=read,
        hub=Hub(
            "ChilleD/SVAMP",
            None,
            "test",
            "5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef",
            numbers=("Answer",),
        ),
    ),
    paper="arXiv:2103.07191",
    licence="MIT",
    contamination="public since 2021; made from ASDiv-A problems, which MAWPS partly shares",
)
