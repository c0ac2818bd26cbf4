"""The judge of criteria: what its rules say, and what its policy answers to its questions."""

import math
from collections.abc import Sequence
from pathlib import Path

from posttrain.errors import ConfigError, Fault, PosttrainError
from posttrain.plugins import build
from posttrain.reward_model.kinds.rubric import Criterion
from posttrain.reward_model.rules import RULES, Rule

QUESTION = "Request:\n{prompt}\n\nResponse:\n{response}\n\n{question} Answer Yes or No."

SAID = 8
"""Tokens that an answer of Yes or No may take, its end of turn included (assumed)."""


def rules_of(criteria: Sequence[Criterion], where: str) -> list[Rule | None]:
    """The rule of each criterion, None for a question; raises every fault at once."""
    found: list[Rule | None] = []
    errors: list[Fault] = []
    for at, criterion in enumerate(criteria):
        place = f"{where}.criteria.{at}"
        try:
            found.append(build(RULES, criterion.rule, place) if criterion.rule else None)
            if found[-1]:
                found[-1]("", "Probe.")
        except PosttrainError as error:
            errors += error.faults
        except TypeError as error:
            mend = "give the parameters that the instruction has"
            errors.append(Fault("bad parameters of a rule", place, str(error), mend))
    if errors:
        raise ConfigError(*errors)
    return found


class RubricJudge:
    """Adds up its criteria."""

    def __init__(self, criteria: Sequence[Criterion], policy: Path | None) -> None:
        self.criteria = criteria
        self.rules = rules_of(criteria, "judge.json")
        self.policy = None
        if policy is not None:
            from posttrain.policies import load_policy

            self.policy = load_policy(policy)

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """The sum over criteria of weight * value; NaN where a question exceeds the context."""
        rows = list(zip(prompts, responses, strict=True))
        scores = [0.0] * len(rows)
        for criterion, rule in zip(self.criteria, self.rules, strict=True):
            if rule is not None:
                values = [rule(prompt, response) for prompt, response in rows]
            else:
                values = self._chances(str(criterion.question), rows)
            scores = [
                score + criterion.weight * value
                for score, value in zip(scores, values, strict=True)
            ]
        return scores

    def _chances(self, question: str, rows: Sequence[tuple[str, str]]) -> list[float]:
        """The policy's chance of Yes against No, about each prompt and response."""
        from posttrain.benchmark.steps import chance_of_yes, sums_of
        from posttrain.engines.transformers import TransformersEngine
        from posttrain.policies import batch_ids, chat_texts

        assert self.policy is not None
        asked = [
            QUESTION.format(prompt=prompt, response=response, question=question)
            for prompt, response in rows
        ]
        model, tokenizer = self.policy
        room = (getattr(model.config, "max_position_embeddings", None) or math.inf) - SAID
        ids = batch_ids(tokenizer, chat_texts(tokenizer, asked))
        fitting = [text for text, own in zip(asked, ids, strict=True) if len(own) <= room]
        distinct = list(dict.fromkeys(fitting))
        score = sums_of(TransformersEngine(self.policy))
        chances = dict(zip(distinct, chance_of_yes(score, distinct), strict=True))
        return [chances.get(text, math.nan) for text in asked]
