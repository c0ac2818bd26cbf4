"""Arena-Hard v0.1: 500 prompts of users, against recorded answers of gpt-4-0613."""

from collections.abc import Iterator
from dataclasses import replace

from posttrain.benchmark.suites import mt_bench
from posttrain.benchmark.suites.sources import Paired, prompt_of
from posttrain.benchmark.suites.suite import Item
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The prompt."""
    yield Item(prompt_of("text", text(line, "prompt"), "baseline", "arena_hard"))


def recorded(line: Line) -> tuple[str, str]:
    """Question id and the recorded answer."""
    content = field(line, "messages")[-1]["content"]
    return text(line, "uid"), str(content["answer"] if isinstance(content, dict) else content)


SUITE = replace(
    mt_bench.SUITE,
    name="arena_hard",
    about=__doc__,
    source=Paired(
        files=(
            "arena_hard/arena_hard_v0.1_question.jsonl",
            "arena_hard/arena_hard_v0.1_answers_gpt-4-0613.jsonl",
        ),
        read=read,
        key=lambda line: text(line, "uid"),
        answer=recorded,
    ),
    max_new_tokens=2048,
    paper="arXiv:2406.11939; upstream's baseline is gpt-4-0314 and its judge a GPT-4",
    contamination="public since 2024; win rates depend on the judge",
)
