"""Competition maths, test problems of MATH, judged by math-verify."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Hub, Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.source import Line, text


def read(line: Line, file: str) -> Iterator[Item]:
    """Problem and final answer in LaTeX."""
    yield Item(prompt_of("math", text(line, "question").strip(), text(line, "gt"), "math"))


SUITE = Suite(
    name="math",
    about=__doc__,
    source=Upstream(
        files=("bon_math_cot_100/math_cot_100.jsonl",),
        read=read,
        hub=Hub(
            "HuggingFaceH4/MATH-500",
            None,
            "test",
            "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            columns={"question": "problem", "gt": "answer"},
        ),
    ),
    prompt="{question}\nPut the final answer in \\boxed{}.",
    paper="arXiv:2103.03874; the 500 of arXiv:2305.20050",
    licence="MIT",
    contamination="public since 2021, found in many training sets",
)
