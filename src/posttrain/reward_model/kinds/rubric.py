"""Judges that learn nothing: criteria, each a rule or a question to the policy, by weight."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from posttrain.errors import ConfigError, Fault
from posttrain.plugins import Plugin

if TYPE_CHECKING:
    from posttrain.reward_model.kinds import Made, Work
    from posttrain.reward_model.rubric import RubricJudge

WHERE = "reward_model.kind"


class Criterion(BaseModel):
    """Either a rule of `posttrain.reward_model.rules` or a question that Yes or No answers.

    Met in full it adds `weight`, in nats of Bradley-Terry strength, to a response's score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: Plugin | None = None
    question: str | None = Field(None, min_length=1)
    weight: float = Field(1.0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.rule is None) == (self.question is None):
            raise ValueError("give a rule or a question, and not both")
        return self


class Rubric:
    """Criteria: rules, and questions that the policy answers by its chance of Yes against No.

    Nothing is trained; the judge's folder holds a copy of the policy where there is a question. Its
    score is the sum of weight * value, a rule's value and a chance being in [0, 1].
    """

    def __init__(self, *, criteria: list[Criterion]) -> None:
        from posttrain.reward_model.rubric import rules_of

        if not criteria:
            why, mend = "it would call all responses alike", "give at least one"
            raise ConfigError(Fault("no criteria", f"{WHERE}.criteria", why, mend))
        rules_of(criteria, WHERE)
        self.criteria = criteria

    def make(self, work: "Work") -> "Made":
        """Copy the policy, if anybody is to ask it."""
        from posttrain.policies import load_policy, save_policy
        from posttrain.reward_model.kinds import Made

        work.folder.mkdir(parents=True, exist_ok=True)
        if any(criterion.question for criterion in self.criteria):
            save_policy(load_policy(work.policy).model, work.tokenizer, work.folder)
        return Made()

    def read(self, folder: Path) -> "RubricJudge":
        """The judge, with the policy of its folder if it asks one."""
        from posttrain.reward_model.rubric import RubricJudge

        asks = any(criterion.question for criterion in self.criteria)
        return RubricJudge(self.criteria, folder if asks else None)


class Rules(Rubric):
    """Rules alone: the same score for the same response, at no cost and without a model."""

    def __init__(self, *, criteria: list[Criterion]) -> None:
        asked = [each.question for each in criteria if each.question]
        if asked:
            why, mend = "rules ask no model", "make it a `rubric`, or leave the questions out"
            raise ConfigError(Fault(f"a question: {asked[0]!r}", f"{WHERE}.criteria", why, mend))
        super().__init__(criteria=criteria)
