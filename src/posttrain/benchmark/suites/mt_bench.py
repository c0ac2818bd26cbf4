"""MT-Bench: the first turn of the questions with a recorded answer, against that answer."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import DUEL_METRICS
from posttrain.benchmark.suites.sources import Paired, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The first turn, by category; the second is left out, a policy's prompt is one turn."""
    turns = field(line, "turns")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise DataError(Fault("bad turns", line.where, f"{turns!r}", "mend the row"))
    category = text(line, "category")
    yield Item(prompt_of("text", turns[0], "baseline", f"mt_bench/{category}"), category=category)


def recorded(line: Line) -> tuple[str, str]:
    """Question id and the recorded answer to the first turn."""
    return str(field(line, "question_id")), str(field(line, "choices")[0]["turns"][0])


SUITE = Suite(
    name="mt_bench",
    about=__doc__,
    source=Paired(
        files=("mt_bench/mt_bench_question.jsonl", "mt_bench/mt_bench_reference_gpt-4.jsonl"),
        read=read,
        key=lambda line: str(field(line, "question_id")),
        answer=recorded,
    ),
    scorer="against_baseline",
    metric="win_rate",
    metrics=DUEL_METRICS,
    max_new_tokens=1024,
    paper="arXiv:2306.05685",
    licence="Apache-2.0",
    contamination="public since 2023 and widely trained on; win rates depend on the judge",
)
