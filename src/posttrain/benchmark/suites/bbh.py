"""BIG-Bench Hard: 27 reasoning tasks with short answers, word for word."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.source import Line, text


def read(line: Line, file: str) -> Iterator[Item]:
    """Input and target, whichever of the 27 tasks it is."""
    source = f"bbh/{text(line, 'task')}"
    yield Item(prompt_of("text", text(line, "input").strip(), text(line, "target"), source))


SUITE = Suite(
    name="bbh",
    about=__doc__,
    source=Upstream(files=("bbh/bbh.jsonl",), read=read),
    scorer="exact_match",
    metric="exact_match",
    paper="arXiv:2210.09261",
    licence="MIT",
    contamination="the rows carry a canary: never train on them",
)
