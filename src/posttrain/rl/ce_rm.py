"""CE-RM's two-stage rollout: criteria for a query, then evaluations of a pair under them.

The prompts are pairs of the task `judging` (`posttrain.reward_model.generative.pairs`); each turn
has a prompt of its own, whose answer says what was asked about the pair. Paper: arXiv:2601.20327.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import Field

from posttrain.records import Prompt
from posttrain.reward_model.generative.pairs import Case, case_of
from posttrain.rl.asks import Ask, Play
from posttrain.rl.rollout import Rollout


class Turn(NamedTuple):
    """What a place of a group is for: the case with its role, None for another task's prompt;
    `home`: which ask writes the criteria, itself if it needs none."""

    case: Case | None
    home: int


def ce_rm(
    play: Play,
    asks: Sequence[Ask],
    _demonstrations: Mapping[str, Rollout],
    /,
    *,
    criteria: Annotated[int, Field(ge=1)] = 4,
) -> list[Rollout]:
    """Criteria in a group's first places, evaluations under them in the others (arXiv:2601.20327).

    20 places are 4 criteria, and under each 2 evaluations of the chosen and 2 of the rejected
    response; a group of fewer than 3 places for each has fewer criteria. Criteria that are not in
    form are evaluated under as they stand. Prompts of other tasks are answered in one turn.
    """
    turns = plan(asks, criteria)
    own = [at for at, turn in enumerate(turns) if turn.home == at]
    rest = [at for at, turn in enumerate(turns) if turn.home != at]
    opened = play([opening(asks[at], turns[at].case) for at in own])
    found = dict(zip(own, opened, strict=True))
    if rest:
        given = [found[turns[at].home].text for at in rest]
        later = [
            evaluating(asks[at], turns[at].case, text) for at, text in zip(rest, given, strict=True)
        ]
        found.update(zip(rest, play(later), strict=True))
    return [found[at] for at in range(len(asks))]


def plan(asks: Sequence[Ask], criteria: int) -> list[Turn]:
    """What each ask is for; a group begins at place 0, and where the prompt changes."""
    starts = [
        at
        for at, ask in enumerate(asks)
        if not at or ask.place == 0 or ask.prompt.id != asks[at - 1].prompt.id
    ]
    turns: list[Turn] = []
    for start, end in pairwise([*starts, len(asks)]):
        case = case_of(asks[start].prompt)
        if case is None:
            turns += [Turn(None, at) for at in range(start, end)]
            continue
        first = max(1, min(criteria, (end - start) // 3))
        for place in range(end - start):
            under = place if place < first else (place - first) // 2 % first
            role = "criteria" if place < first else ("chosen", "rejected")[(place - first) % 2]
            own = case.model_copy(update={"role": role, "under": under})
            turns.append(Turn(own, start + under))
    return turns


def opening(ask: Ask, case: Case | None) -> Ask:
    """The question for criteria; another task's prompt as it stands."""
    return ask if case is None else asked(ask, case, case.criteria())


def evaluating(ask: Ask, case: Case | None, written: str) -> Ask:
    """The question for a score under what was written."""
    assert case is not None
    criteria = case.words.read_criteria(written) or written.strip()
    return asked(ask, case, case.evaluation(criteria, getattr(case, case.role)))


def asked(ask: Ask, case: Case, text: str) -> Ask:
    """The ask with a question of its own; the prompt's id stays, so that the group is one."""
    answer = case.model_dump_json()
    return ask._replace(prompt=ask.prompt.model_copy(update={"text": text, "answer": answer}))


def longest_turn(prompt: Prompt) -> str:
    """The longest question about a prompt, without the criteria."""
    case = case_of(prompt)
    if case is None:
        return prompt.text
    return case.evaluation("", max(case.chosen, case.rejected, key=len))


def score_of(rollout: Rollout) -> float:
    """The score that an evaluation gives; NaN where it is truncated or not in form."""
    case = case_of(rollout.prompt)
    if case is None or rollout.truncated or case.role == "criteria":
        return float("nan")
    return case.words.read_score(rollout.text)


def in_form(rollout: Rollout) -> bool:
    """Whether criteria or an evaluation can be read."""
    case = case_of(rollout.prompt)
    if case is None or rollout.truncated:
        return False
    if case.role == "criteria":
        return case.words.read_criteria(rollout.text) is not None
    score = score_of(rollout)
    return score == score
