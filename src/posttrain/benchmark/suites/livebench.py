"""LiveBench: dated releases of questions with answers that are compared word for word."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The first turn and its answer; questions whose answer is no text (code, instructions) are
    passed over."""
    turns, answer = field(line, "turns"), line.values.get("ground_truth")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise DataError(Fault("bad turns", line.where, f"{turns!r}", "mend the row"))
    if not isinstance(answer, str) or not answer:
        return
    task = text(line, "task")
    yield Item(
        prompt_of("text", turns[0], answer, f"livebench/{task}"),
        category=task,
        released=day(field(line, "livebench_release_date")),
        removed=day(line.values.get("livebench_removal_date")),
    )


def day(value: object) -> str:
    """A date without its time of day; empty where there is none."""
    return str(value or "")[:10]


SUITE = Suite(
    name="livebench",
    about=__doc__,
    source=Upstream(files=("livebench/question.jsonl",), read=read),
    prompt="{question}\nEnd with a line that holds #### and then only the answer.",
    scorer="exact_match",
    metric="exact_match",
    release="2024-11-25",
    paper="arXiv:2406.19314",
    licence="CC-BY-SA-4.0",
    contamination="dated: a release older than `data_cutoff` is refused",
)
