"""Abstention: tickets too vague to work on and patches that are wrong must be sent back."""

import json
from collections.abc import Iterator

from posttrain.benchmark.formulas import ABSTENTION_METRICS
from posttrain.benchmark.suites.sources import Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, text


def read(line: Line, file: str) -> Iterator[Item]:
    """A ticket (`text`) with `vagueness` 0 to 3, or with a `patch`, whether it is `wrong` (0 or 1)
    and the share of tests `passed`."""
    ticket, patch = text(line, "text").strip(), line.values.get("patch")
    names = ("vagueness",) if patch is None else ("wrong", "passed")
    truth = {name: line.values.get(name) for name in names}
    ranges = {"vagueness": 3, "wrong": 1, "passed": 1}
    for name, value in truth.items():
        if not isinstance(value, int | float) or not 0 <= value <= ranges[name]:
            why = f"it holds {value!r}, wanted is 0 to {ranges[name]}"
            raise DataError(Fault(f"bad `{name}`", line.where, why, "mend the row"))
    kind = "ticket" if patch is None else "patch"
    asked = ticket if patch is None else f"{ticket}\n\nPatch:\n{patch}"
    yield Item(prompt_of("text", asked, json.dumps(truth), f"abstention/{kind}"), category=kind)


SUITE = Suite(
    name="abstention",
    about=__doc__,
    source=Upstream(files=("abstention/items.jsonl",), read=read),
    prompt="{question}\n\nIf this is too vague to work on, or wrong, answer BOUNCE, else ACCEPT.",
    scorer="bounce",
    metric="accuracy",
    metrics=ABSTENTION_METRICS,
    paper="BouncerBench: its scores, on rows in a format of our own",
    licence="that of the rows",
    contamination="that of the rows; BouncerBench is made of public issues",
)
