"""AQuA: algebra word problems with five options, the likeliest of which is chosen."""

import re
from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """Question and options without their letters; an option that stands twice stays once."""
    options, letter = field(line, "options"), text(line, "correct").strip()
    if not isinstance(options, list) or not all(isinstance(each, str) for each in options):
        raise DataError(Fault("bad options", line.where, f"{options!r}", "mend the row"))
    lettered = {each.strip()[:1]: re.sub(r"^[A-Z][).]\s*", "", each.strip()) for each in options}
    if letter not in lettered:
        why = f"answer {letter!r} of {', '.join(lettered)}"
        raise DataError(Fault("bad options", line.where, why, "mend the row"))
    question = text(line, "question").strip()
    whole = "\n".join([question, *lettered.values()])
    prompt = prompt_of("choice", whole, lettered[letter], "aqua_rat")
    options = tuple(dict.fromkeys(lettered.values()))
    yield Item(prompt.model_copy(update={"text": question}), options)


SUITE = Suite(
    name="aqua",
    about=__doc__,
    source=Upstream(files=("aqua_rat/test.jsonl",), read=read),
    scorer="multiple_choice",
    metric="accuracy",
    paper="arXiv:1705.04146",
    licence="Apache-2.0",
    contamination="public since 2017; its training part is in many instruction sets",
)
