"""PRMBench: which steps of a solution are wrong. The policy says, or a judge in its place."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import STEP_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The changed solution; wrong steps, which upstream counts from 1, are labelled so.

    The answer is the place of the first of them from 0, and -1 where there is none. Some rows
    name steps beyond the last one; those that name no other are passed over, lest they seem clean.
    """
    steps, wrong = field(line, "modified_process"), field(line, "error_steps")
    lists = isinstance(steps, list) and isinstance(wrong, list) and bool(steps)
    if not lists or not all(isinstance(at, int) and at >= 1 for at in wrong):
        why = f"error_steps {wrong!r} must be places from 1 in modified_process"
        raise DataError(Fault("bad steps", line.where, why, "mend the row"))
    if wrong and min(wrong) > len(steps):
        return
    labels = tuple(at + 1 not in wrong for at in range(len(steps)))
    question = text(line, "modified_question").strip()
    answer = str(next((at for at, right in enumerate(labels) if not right), -1))
    category = text(line, "classification")
    whole = "\n".join([question, *map(str, steps)])
    prompt = prompt_of("text", whole, answer, f"prmbench/{category}")
    prompt = prompt.model_copy(update={"text": question})
    yield Item(prompt, tuple(map(str, steps)), labels, category)


SUITE = Suite(
    name="prmbench",
    about=__doc__,
    source=Upstream(files=("prmbench/prmbench_all.jsonl",), read=read),
    scorer="steps",
    metric="first_error_accuracy",
    metrics=STEP_METRICS,
    paper="arXiv:2501.03124; first errors after arXiv:2412.06559",
    licence="Apache-2.0",
    contamination="made from PRM800K, which many process reward models are trained on",
)
