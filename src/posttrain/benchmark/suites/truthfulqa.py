"""TruthfulQA, multiple choice: is the true answer likelier than common falsehoods (MC1, MC2)."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import TRUTHFUL_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The best answer, the other true ones and the false ones, in this order."""
    best = text(line, "Best Answer").strip()
    true = dict.fromkeys([best, *listed(text(line, "Correct Answers"))])
    wrong = dict.fromkeys(listed(text(line, "Incorrect Answers")))
    false = [each for each in wrong if each not in true]
    if not best or not false:
        why = "a best answer and a false one are needed"
        raise DataError(Fault("bad answers", line.where, why, "mend the row"))
    category = text(line, "Category")
    prompt = prompt_of("text", text(line, "Question").strip(), best, f"truthfulqa/{category}")
    labels = (*(True for _ in true), *(False for _ in false))
    yield Item(prompt, (*true, *false), labels, category)


def listed(answers: str) -> list[str]:
    """The answers of a cell, semicolons between them."""
    return [each.strip() for each in answers.split(";") if each.strip()]


SUITE = Suite(
    name="truthfulqa",
    about=__doc__,
    source=Upstream(files=("truthfulqa/TruthfulQA.csv",), read=read),
    scorer="truthful_choice",
    metric="mc1",
    metrics=TRUTHFUL_METRICS,
    paper="arXiv:2109.07958",
    licence="Apache-2.0",
    contamination="public since 2021 and widely trained on; falsehoods are common on the web",
)
