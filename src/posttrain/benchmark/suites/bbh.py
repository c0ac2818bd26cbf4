"""BIG-Bench Hard: 27 reasoning tasks with short answers, word for word."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault, accepted
from posttrain.raw.sources.source import Line, text

TASKS = frozenset(
    (
        "boolean_expressions",
        "causal_judgement",
        "date_understanding",
        "disambiguation_qa",
        "dyck_languages",
        "formal_fallacies",
        "geometric_shapes",
        "hyperbaton",
        "logical_deduction_five_objects",
        "logical_deduction_seven_objects",
        "logical_deduction_three_objects",
        "movie_recommendation",
        "multistep_arithmetic_two",
        "navigate",
        "object_counting",
        "penguins_in_a_table",
        "reasoning_about_colored_objects",
        "ruin_names",
        "salient_translation_error_detection",
        "snarks",
        "sports_understanding",
        "temporal_sequences",
        "tracking_shuffled_objects_five_objects",
        "tracking_shuffled_objects_seven_objects",
        "tracking_shuffled_objects_three_objects",
        "web_of_lies",
        "word_sorting",
    )
)


def read(line: Line, file: str) -> Iterator[Item]:
    """Input and target of one of the 27 tasks."""
    task = text(line, "task")
    if task not in TASKS:
        mend = accepted(task, TASKS)
        raise DataError(Fault(f"unknown BBH task `{task}`", line.where, "not of the 27", mend))
    prompt = prompt_of("text", text(line, "input").strip(), text(line, "target"), f"bbh/{task}")
    yield Item(prompt, category=task)


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
