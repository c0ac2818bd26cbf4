"""PersonaGym: questions to a persona on five tasks; a judge says whether it stays in character."""

from collections.abc import Iterator

from posttrain.benchmark.formulas import PERSONA_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.source import Line, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The persona and the question, by task."""
    task = text(line, "task")
    asked = f"You are this persona: {text(line, 'persona')}\n\n{text(line, 'question')}"
    prompt = prompt_of("text", asked, "in character", f"personagym/{task}")
    yield Item(prompt, category=task)


SUITE = Suite(
    name="personagym",
    about=__doc__,
    source=Upstream(files=("personagym/personagym_questions.jsonl",), read=read),
    scorer="persona",
    metric="in_character",
    metrics=PERSONA_METRICS,
    limit=200,
    sensitive=True,
    paper="arXiv:2407.18416; upstream scores 1 to 5 by rubric, here a judge's chance of Yes",
    licence="MIT",
    contamination="questions are public and have no answers to learn; one task provokes insults",
)
