"""Step scorers and what a benchmark of process reward models makes of their scores.

A step scorer gives each step of a solution its chance of being right; at least THETA means right.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Sample

THETA = 0.5
"""At least this score means a right step; ProcessBench's default (arXiv:2412.06559)."""

QUESTION = (
    "Problem: {question}\nSolution so far:\n{steps}\nIs the last step right? Answer Yes or No."
)

Score = Callable[[Sequence[str], Sequence[str]], list[float]]
"""Prompts and responses in, a score in nats each: log-likelihoods, or a judge's."""


@runtime_checkable
class StepJudge(Protocol):
    """A judge that was trained on steps: scores in [0, 1] for each step of each solution."""

    def score_steps(
        self, prompts: Sequence[str], solutions: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """One list per solution, as long as it has steps."""


def sums_of(engine: Engine) -> Score:
    """A policy's log-likelihood of whole responses."""

    def score(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [math.fsum(logps) for logps in engine.logps(prompts, responses)]

    return score


def chance_of_yes(score: Score, questions: Sequence[str]) -> list[float]:
    """sigmoid(score("Yes") - score("No")) of each question; NaN where a score is no number.

    With log-likelihoods that is the policy's chance of the one among the two, with a judge's
    scores the Bradley-Terry chance that it is the better answer.
    """
    doubled = [question for question in questions for _ in range(2)]
    found = iter(score(doubled, ["Yes", "No"] * len(questions)))
    return [sigmoid(next(found) - next(found)) for _ in questions]


def sigmoid(gap: float) -> float:
    """1 / (1 + exp(-gap)) without overflow."""
    if gap >= 0:
        return 1 / (1 + math.exp(-gap))
    return math.exp(gap) / (1 + math.exp(gap))


def by_question(score: Score) -> Callable[[Sequence[Item]], list[list[float]]]:
    """Ask of each step, with what stands before it, whether it is right."""

    def steps(items: Sequence[Item]) -> list[list[float]]:
        asked = [
            QUESTION.format(question=item.prompt.text, steps="\n".join(item.options[: at + 1]))
            for item in items
            for at in range(len(item.options))
        ]
        found = iter(chance_of_yes(score, asked))
        return [[next(found) for _ in item.options] for item in items]

    return steps


def steps_by_policy(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """The policy itself says of each step whether it is right, by its chance of Yes against No."""
    scores = by_question(sums_of(engine))(items)
    return [step_row(suite, item, own) for item, own in zip(items, scores, strict=True)]


def step_row(suite: str, item: Item, scores: Sequence[float]) -> Sample:
    """The row of a solution. `correct`: the first wrong step is found, or none where there is none.

    A score that is no number calls its step wrong, and the solution counts as `unscored`; so does
    one without a score for each step.
    """
    if len(scores) != len(item.options):
        scores = [math.nan] * len(item.options)
    said = [score >= THETA for score in scores]
    pairs = list(zip(said, item.labels, strict=True))
    first, found = first_wrong(item.labels), first_wrong(said)
    flawed = first is not None
    measures = {
        "tp": sum(s and r for s, r in pairs),
        "fp": sum(s and not r for s, r in pairs),
        "fn": sum(r and not s for s, r in pairs),
        "tn": sum(not s and not r for s, r in pairs),
        "flawed": flawed,
        "clean": not flawed,
        "flawed_right": flawed and first == found,
        "clean_right": not flawed and found is None,
        "unscored": any(not math.isfinite(score) for score in scores),
    }
    return Sample(
        suite=suite,
        item_id=item.prompt.id,
        index=0,
        prompt=item.prompt.text,
        answer=item.prompt.answer,
        response=" ".join("?" if math.isnan(score) else f"{score:.4f}" for score in scores),
        correct=float(first == found),
        tokens=0,
        truncated=False,
        prediction=place_text(found),
        measures={name: float(value) for name, value in measures.items()},
    )


def first_wrong(right: Sequence[bool]) -> int | None:
    """The place of the first step that is not right, from 0; None when all are."""
    return next((at for at, each in enumerate(right) if not each), None)


def place_text(first: int | None) -> str:
    """The first wrong step as ProcessBench writes it: its place from 0, -1 for none."""
    return str(-1 if first is None else first)
