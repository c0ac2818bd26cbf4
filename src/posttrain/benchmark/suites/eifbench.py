"""EIFBENCH: many instructions with many constraints each, one question to a judge for each."""

import json
from collections.abc import Iterator

from posttrain.benchmark.formulas import CONSTRAINT_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The input with its instructions; the answer is JSON, a list of questions for each."""
    found = field(line, "sub_instructions")
    parts = list(found.values()) if isinstance(found, dict) else []
    sound = all(
        isinstance(part, dict)
        and isinstance(part.get("instruction"), str)
        and isinstance(part.get("scoring_questions"), list)
        and part["scoring_questions"]
        for part in parts
    )
    if not parts or not sound:
        why = "sub_instructions must hold instructions with scoring_questions"
        raise DataError(Fault("bad instructions", line.where, why, "mend the row"))
    asked = "\n".join([text(line, "input"), *(part["instruction"] for part in parts)])
    answer = json.dumps([part["scoring_questions"] for part in parts], ensure_ascii=False)
    prompt = prompt_of("text", asked, answer, "eifbench")
    yield Item(prompt, category=str(line.values.get("category", "")))


SUITE = Suite(
    name="eifbench",
    about=__doc__,
    source=Upstream(files=("eifbench/eifbench.jsonl",), read=read),
    scorer="constraints",
    metric="task_level",
    metrics=CONSTRAINT_METRICS,
    max_new_tokens=2048,
    paper="arXiv:2506.08375",
    licence="none given upstream: do not pass the rows on",
    contamination="public since 2025; upstream's judge was GPT-4o, scores depend on the judge",
)
