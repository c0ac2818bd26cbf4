"""MMLU, the 19 STEM subjects: the likeliest of four options."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Hub, Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text

SUBJECTS = frozenset(
    (
        "abstract_algebra",
        "anatomy",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    )
)


def read(line: Line, file: str) -> Iterator[Item]:
    """Question and options; rows of other subjects are passed over."""
    subject = text(line, "type")
    if subject not in SUBJECTS:
        return
    options, answer = field(line, "choices"), field(line, "answer")
    if not isinstance(options, list) or not isinstance(answer, int) or answer >= len(options):
        raise DataError(
            Fault("bad options", line.where, f"answer {answer!r} of {options!r}", "mend the row")
        )
    question = text(line, "question").strip()
    # Some questions are asked twice with other options: the id must tell them apart.
    whole = "\n".join([question, *map(str, options)])
    prompt = prompt_of("choice", whole, str(options[answer]), f"mmlu_stem/{subject}")
    yield Item(prompt.model_copy(update={"text": question}), tuple(map(str, options)))


SUITE = Suite(
    name="mmlu_stem",
    about=__doc__,
    source=Upstream(
        files=("mmlu_stem/test.jsonl",),
        read=read,
        hub=Hub(
            "cais/mmlu",
            "all",
            "test",
            "c30699e8356da336a370243923dbaf21066bb9fe",
            columns={"type": "subject"},
        ),
    ),
    scorer="multiple_choice",
    metric="accuracy",
    paper="arXiv:2009.03300",
    licence="MIT",
    contamination="public since 2020 and widely trained on; about 6% of labels are wrong"
    " (arXiv:2406.04127)",
)
