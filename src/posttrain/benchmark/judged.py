"""Scorers that need a judge, and those of instructions that a rule or a judge checks.

JUDGED: name -> a function of the judge that gives a scorer. A suite that only stands here is
refused without a judge; one that stands in SCORERS too takes the judge instead of its stand-in.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from posttrain.benchmark.steps import (
    Score,
    StepJudge,
    by_question,
    chance_of_yes,
    sigmoid,
    step_row,
)
from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.interruption import asked
from posttrain.records import Sample
from posttrain.reward_model.protocol import Judge, PairwiseJudge
from posttrain.samples import generated

Scorer = Callable[[Engine, str, Sequence[Item], Sampling], list[Sample]]


PATIENCE = 3
"""Failures in a row after which a judge is asked no more about a chunk (assumed)."""

Answer = TypeVar("Answer")


def patiently(
    ask: Callable[..., list[Answer]], otherwise: Answer, *columns: Sequence[object]
) -> list[Answer]:
    """What a judge answers; `otherwise` where it fails, whatever it raises: a failure is counted.

    All rows are asked about at once, and where that fails one by one.
    """
    try:
        found = ask(*columns)
        if len(found) == len(columns[0]):
            return found
    except Exception as error:
        _raise_if_asked(error)
    answers: list[Answer] = []
    failures = 0
    for row in zip(*columns, strict=True):
        try:
            [one] = ask(*([value] for value in row)) if failures < PATIENCE else [otherwise]
            answers.append(one)
            failures = failures if failures >= PATIENCE else 0
        except Exception as error:
            _raise_if_asked(error)
            answers.append(otherwise)
            failures += 1
    return answers


def _raise_if_asked(error: Exception) -> None:
    """What the stage was asked to stop with is no failure of the judge."""
    if error is asked():
        raise error


def scores_by(judge: Judge) -> Score:
    """A judge's scores, NaN where it fails."""
    return partial(patiently, judge.score, math.nan)


def steps_by_judge(judge: Judge) -> Scorer:
    """Step scores of a judge: its own where it has `score_steps`, else its answer to a question."""

    def scorer(
        engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
    ) -> list[Sample]:
        if isinstance(judge, StepJudge):
            asked = [item.prompt.text for item in items], [item.options for item in items]
            nothing: list[float] = []
            scores = patiently(judge.score_steps, nothing, *asked)
        else:
            scores = by_question(scores_by(judge))(items)
        return [step_row(suite, item, own) for item, own in zip(items, scores, strict=True)]

    return scorer


PERSONA_QUESTION = (
    "{question}\n\nResponse: {response}\n\nDoes the response speak and act as this persona would?"
    " Answer Yes or No."
)


def persona(judge: Judge) -> Scorer:
    """Generate in a persona; right when the judge holds Yes for better than No as to whether the
    response is in character. `persona_score` is the mean chance of Yes."""

    def scorer(
        engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
    ) -> list[Sample]:
        rows = generated(engine, suite, [i.prompt for i in items], sampling, lambda *_: False)
        asked = [PERSONA_QUESTION.format(question=r.prompt, response=r.response) for r in rows]
        chances = chance_of_yes(scores_by(judge), asked)
        return [graded(row, of, "persona") for row, of in zip(rows, chances, strict=True)]

    return scorer


def graded(row: Sample, chance: float, measure: str) -> Sample:
    """A row with a judge's chance; a chance that is no number, or an empty response, is wrong."""
    if not math.isfinite(chance):
        return row.model_copy(update={"correct": 0.0, "measures": {"unscored": 1.0}})
    value = chance if row.response.strip() else 0.0
    update = {
        "correct": float(value > 0.5),
        "judge": round(chance, 6),
        "measures": {measure: value},
    }
    return row.model_copy(update=update)


def against_baseline(judge: Judge) -> Scorer:
    """Generate, and compare with the recorded answer that the item holds, in both orders.

    A judge of pairs is asked twice, and wins that do not survive the swap are ties (`swapped`);
    one that scores responses alone cannot mind the order: sigmoid of the difference. `correct` is
    1 for a win, 0.5 for a tie.
    """

    def scorer(
        engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
    ) -> list[Sample]:
        rows = generated(engine, suite, [i.prompt for i in items], sampling, lambda *_: False)
        rivals = {item.prompt.id: item.options[0] for item in items}
        asked = ([r.prompt for r in rows], [r.response for r in rows])
        theirs = [rivals[row.item_id] for row in rows]
        first, second = both_orders(judge, *asked, theirs)
        return [duel(*each) for each in zip(rows, first, second, strict=True)]

    return scorer


def both_orders(
    judge: Judge, prompts: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Chances that ours is better, shown first and shown second."""
    if isinstance(judge, PairwiseJudge):
        compare = partial(patiently, judge.compare, math.nan)
        shown_first = compare(prompts, ours, theirs)
        shown_second = compare(prompts, theirs, ours)
        return [sigmoid(of) for of in shown_first], [sigmoid(-of) for of in shown_second]
    score = scores_by(judge)
    gaps = zip(score(prompts, ours), score(prompts, theirs), strict=True)
    chances = [sigmoid(mine - other) for mine, other in gaps]
    return chances, chances


def duel(row: Sample, first: float, second: float) -> Sample:
    """The row of one comparison."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return row.model_copy(update={"correct": 0.0, "measures": {"unscored": 1.0}})
    if not row.response.strip():
        first = second = 0.0
    disagree = (first - 0.5) * (second - 0.5) < 0
    won = 0.5 if disagree or first == second == 0.5 else float(first + second > 1)
    measures = {"chance": (first + second) / 2, "swapped": float(disagree)}
    return row.model_copy(
        update={"correct": won, "judge": round((first + second) / 2, 6), "measures": measures}
    )


CONSTRAINT_QUESTION = "Request:\n{question}\n\nResponse:\n{response}\n\n{check}\nAnswer Yes or No."


def constraints(judge: Judge) -> Scorer:
    """Generate, and ask the judge one yes/no question for each constraint (EIFBENCH).

    The item's answer is JSON: one list of questions for each of its instructions. `correct` is
    whether all constraints of all instructions hold; one whose score is no number does not hold.
    """

    def scorer(
        engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
    ) -> list[Sample]:
        rows = generated(engine, suite, [i.prompt for i in items], sampling, lambda *_: False)
        checks = [json.loads(row.answer) for row in rows]
        asked = [
            CONSTRAINT_QUESTION.format(question=row.prompt, response=row.response, check=check)
            for row, lists in zip(rows, checks, strict=True)
            for each in lists
            for check in each
        ]
        found = iter(chance_of_yes(scores_by(judge), asked))
        return [
            constraint_row(row, [[next(found) for _ in each] for each in lists])
            for row, lists in zip(rows, checks, strict=True)
        ]

    return scorer


def constraint_row(row: Sample, chances: Sequence[Sequence[float]]) -> Sample:
    """Constraint, instruction and task level of one response, from its chances of Yes.

    CLA: mean over an item's constraints; ILA: share of its instructions that hold throughout;
    task level: whether all do (arXiv:2506.08375). Items weigh the same in each.
    """
    answered = bool(row.response.strip())
    held = [[answered and chance > 0.5 for chance in each] for each in chances]
    flat = [each for instruction in held for each in instruction]
    bad = any(not math.isfinite(chance) for each in chances for chance in each)
    measures = {
        "cla": sum(flat) / len(flat),
        "ila": sum(map(all, held)) / len(held),
        "unscored": float(bad),
    }
    return row.model_copy(update={"correct": float(all(flat)), "measures": measures})


JUDGED: dict[str, Callable[[Judge], Scorer]] = {
    "steps": steps_by_judge,
    "persona": persona,
    "against_baseline": against_baseline,
    "constraints": constraints,
}
