"""Steps worth imitating, of good and of failed trajectories (WebSTAR, arXiv:2512.10962)."""

import math
import random
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from posttrain.records import Demonstration, Record, content_id
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of


def step_filter(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    above: Annotated[float, Field(ge=0, lt=10)] = 5.0,
) -> Iterable[Record]:
    """A row for each step that the judge gives more than `above` of 10.

    The lines of a response are its steps. The judge sees a step after the prompt and all earlier
    steps, good and bad; they become the prompt of the new row, so that the loss is on the step
    alone and the context stays whole. Its score is 10 / (1 + exp(-s)) (assumed) for a judge's
    score s; a step that it cannot score is left out.
    """
    steps = [step for row in all_of(rows, Demonstration) for step in steps_of(row)]
    grades = measures.note("step_grade", steps, [*map(grade_of, measures.scores(steps))])
    return [step for step, grade in zip(steps, grades, strict=True) if grade > above]


def grade_of(score: float) -> float:
    """A judge's score as a grade of 0..10; NaN stays."""
    return 10 / (1 + math.exp(-max(-700.0, score))) if math.isfinite(score) else math.nan


def steps_of(row: Demonstration) -> Iterator[Demonstration]:
    """Each step as a response to the prompt and the steps before it."""
    lines = [line for line in row.response.splitlines() if line.strip()]
    for at, line in enumerate(lines):
        prompt = "\n".join([row.prompt, *lines[:at]])
        changes = {"id": content_id(row.id, str(at)), "prompt": prompt, "response": line}
        yield row.model_copy(update=changes)
