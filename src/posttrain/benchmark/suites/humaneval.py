"""HumanEval: finish a Python function, judged by its tests in a sandbox."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import PROGRAM_METRICS
from posttrain.benchmark.suites.sources import Hub, Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.source import Line, text
from posttrain.sandbox.verdicts import CodeTests


def read(line: Line, file: str) -> Iterator[Item]:
    """The begun function; its tests call `check` on it.

    A response may go on with the body or give the whole function: either stands after the prompt.
    """
    question, name = text(line, "prompt"), text(line, "entry_point")
    tests = CodeTests(
        tests=f"{text(line, 'test')}\ncheck({name})\n", names=(name,), before=question
    )
    answer = tests.model_dump_json(exclude_defaults=True)
    yield Item(prompt_of("code", question, answer, "humaneval"))


SUITE = Suite(
    name="humaneval",
    about=__doc__,
    source=Upstream(
        files=("humaneval/HumanEval.jsonl",),
        read=read,
        hub=Hub(
            "openai/openai_humaneval", None, "test", "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544"
        ),
    ),
    scorer="programs",
    metrics=PROGRAM_METRICS,
    prompt="Complete this Python function. Answer with the whole function in one code block.\n\n"
    "```python\n{question}```",
    max_new_tokens=1024,
    paper="arXiv:2107.03374",
    licence="MIT",
    contamination="public since 2021 and copied into many repositories",
)
