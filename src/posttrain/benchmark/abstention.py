"""Abstention: whether a policy sends back what it should not work on (BouncerBench).

A ticket has a vagueness of 0 to 3; a patch is right or wrong and passes a share of its tests.
Shapes: I items; bounced_I and wrong_I are 0 or 1.
"""

import json
import re
from collections.abc import Sequence

import numpy as np

from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Sample
from posttrain.samples import generated
from posttrain.statistics import Array

MUST_BOUNCE = 2
"""From this vagueness on a ticket must be sent back (assumed: the upper half of 0 to 3)."""

_VERDICT = re.compile(r"\b(BOUNCE|ACCEPT)\b")


def input_score(vagueness_I: Array, bounced_I: Array) -> Array:
    """I-Score of each ticket: (2/3) (-1)^(1-b) (l - 1.5), in [-1, 1]; the score is its mean."""
    return 2 / 3 * np.where(bounced_I > 0, 1, -1) * (vagueness_I - 1.5)


def output_score(wrong_I: Array, bounced_I: Array, passed_I: Array) -> Array:
    """O-Score of each patch: (-1)^(b+c) times the share of tests it passes; c is 1 if it is wrong.

    A wrong patch that passes nothing weighs nothing: with passed_I of ones it is the plain score.
    """
    return np.where((bounced_I > 0) == (wrong_I > 0), 1, -1) * passed_I


def bounce(engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling) -> list[Sample]:
    """Generate, and read the first BOUNCE or ACCEPT of the response.

    The item's answer is JSON with `vagueness`, or with `wrong` and `passed`. A response that
    says neither abstains from nothing, and counts as `unscored`.
    """
    rows = generated(engine, suite, [item.prompt for item in items], sampling, lambda *_: False)
    return [bounced_row(row) for row in rows]


def bounced_row(row: Sample) -> Sample:
    """A row with its verdict; `correct` where it bounces what it must, and nothing else."""
    said = _VERDICT.search(row.response)
    bounced = said is not None and said[1] == "BOUNCE"
    truth = json.loads(row.answer)
    flag = np.array([float(bounced)])
    if "vagueness" in truth:
        must = truth["vagueness"] >= MUST_BOUNCE
        found = {"i_score": input_score(np.array([truth["vagueness"]]), flag)[0], "tickets": 1.0}
    else:
        must = bool(truth["wrong"])
        wrong, passed = np.array([float(must)]), np.array([float(truth["passed"])])
        found = {
            "o_score": output_score(wrong, flag, passed)[0],
            "o_plain": output_score(wrong, flag, np.ones(1))[0],
            "patches": 1.0,
        }
    outcome = {(True, True): "tp", (True, False): "fn", (False, True): "fp", (False, False): "tn"}
    sides = {"must": float(must), "acceptable": float(not must), outcome[must, bounced]: 1.0}
    measures = {**{k: float(v) for k, v in found.items()}, **sides, "unscored": float(said is None)}
    return row.model_copy(update={"correct": float(must == bounced), "measures": measures})
