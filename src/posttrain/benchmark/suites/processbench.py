"""ProcessBench: the first wrong step of a solution, or that there is none."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import STEP_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text

PARTS = ("gsm8k", "math", "olympiadbench", "omnimath")


def read(line: Line, file: str) -> Iterator[Item]:
    """Problem, steps and `label`: the first wrong step from 0, or -1.

    Upstream says nothing of the steps after it: they count as wrong ones in PRMScore (assumed).
    """
    steps, label = field(line, "steps"), field(line, "label")
    if not isinstance(steps, list) or not isinstance(label, int) or not -1 <= label < len(steps):
        why = f"label {label!r} must be -1 or the place of a step"
        raise DataError(Fault("bad steps", line.where, why, "mend the row"))
    labels = tuple(label < 0 or at < label for at in range(len(steps)))
    question = text(line, "problem").strip()
    part = file.rsplit("/", 1)[-1].removesuffix(".jsonl")
    whole = "\n".join([question, *map(str, steps)])
    prompt = prompt_of("text", whole, str(label), f"processbench/{part}")
    prompt = prompt.model_copy(update={"text": question})
    yield Item(prompt, tuple(map(str, steps)), labels, part)


SUITE = Suite(
    name="processbench",
    about=__doc__,
    source=Upstream(files=tuple(f"processbench/{part}.jsonl" for part in PARTS), read=read),
    scorer="steps",
    metric="first_error_accuracy",
    metrics=STEP_METRICS,
    paper="arXiv:2412.06559",
    licence="Apache-2.0",
    contamination="solutions to public problems: a policy may know their answers",
)
