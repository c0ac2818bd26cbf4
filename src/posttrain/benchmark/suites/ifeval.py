"""IFEval: instructions that a rule can check, strictly and loosely."""

import json
from collections.abc import Iterator

from posttrain.benchmark.formulas import FOLLOWING_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text


def read(line: Line, file: str) -> Iterator[Item]:
    """The request, and what it asks for as JSON: pairs of a type and its parameters."""
    kinds, parameters = field(line, "instruction_id_list"), field(line, "kwargs")
    lists = isinstance(kinds, list) and isinstance(parameters, list)
    if not lists or len(kinds) != len(parameters) or not kinds:
        why = "instruction_id_list and kwargs must be lists of one length"
        raise DataError(Fault("bad instructions", line.where, why, "mend the row"))
    asked = [[kind, of] for kind, of in zip(kinds, parameters, strict=True)]
    answer = json.dumps(asked, ensure_ascii=False, sort_keys=True)
    category = kinds[0].split(":")[0] if len(kinds) == 1 else "several"
    yield Item(prompt_of("text", text(line, "prompt"), answer, "ifeval"), category=category)


SUITE = Suite(
    name="ifeval",
    about=__doc__,
    source=Upstream(files=("ifeval/ifeval_input_data.jsonl",), read=read),
    scorer="instructions",
    metric="prompt_strict",
    metrics=FOLLOWING_METRICS,
    max_new_tokens=1280,
    paper="arXiv:2311.07911",
    licence="Apache-2.0",
    contamination="public since 2023, and used as a source of verifiable training prompts",
)
