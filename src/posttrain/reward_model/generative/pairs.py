"""A pair as a prompt of `rl`: the task `judging`, whose answer is the pair itself, as JSON.

The text of the prompt asks which of the two responses is better, so that the task has a verifier
like any other; a strategy that asks in several turns makes its own questions of the pair.
"""

from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from posttrain.records import Prompt, RawRow, content_id
from posttrain.reward_model.generative.templates import TEMPLATES, Template, TemplateName

JUDGING = "judging"

Role = Literal["pair", "criteria", "chosen", "rejected"]


class Case(BaseModel):
    """A pair to judge. `role`: what is asked about it, `under`: with which criteria, from 0 on;
    `chosen_first`: in which order the text of the prompt shows the two."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: TemplateName
    query: str
    chosen: str
    rejected: str
    chosen_first: bool
    role: Role = "pair"
    under: int = 0

    @property
    def words(self) -> Template:
        """How it is asked about."""
        return TEMPLATES[self.template]

    def pair(self) -> str:
        """The question which of the two is better."""
        shown = (self.chosen, self.rejected) if self.chosen_first else (self.rejected, self.chosen)
        return self.words.pair.format(query=self.query, first=shown[0], second=shown[1])

    def criteria(self) -> str:
        """The question for criteria, which shows no response."""
        return self.words.criteria.format(query=self.query)

    def evaluation(self, criteria: str, response: str) -> str:
        """The question for a score of one response."""
        return self.words.evaluation.format(query=self.query, criteria=criteria, response=response)


def judging_row(row: RawRow, template: TemplateName) -> RawRow:
    """A preference as a question which response is better; a digest decides their order."""
    chosen, rejected = row.chosen or "", row.rejected or ""
    case = Case(
        template=template,
        query=row.prompt,
        chosen=chosen,
        rejected=rejected,
        chosen_first=int(content_id(row.prompt, *sorted((chosen, rejected)), chosen), 16) % 2 == 0,
    )
    return RawRow.of(
        source=row.source,
        task=JUDGING,
        prompt=case.pair(),
        answer=case.model_dump_json(),
        difficulty=row.difficulty,
    )


def case_of(prompt: Prompt) -> Case | None:
    """The pair that a prompt asks about; None where it asks about none."""
    return parsed_case(prompt.answer) if prompt.task == JUDGING else None


@lru_cache(maxsize=4096)
def parsed_case(answer: str) -> Case | None:
    """The pair of a prompt's answer; None where it is no such thing."""
    try:
        return Case.model_validate_json(answer)
    except ValidationError:
        return None


def prefers_the_chosen(_prompt: str, answer: str, response: str) -> bool:
    """Whether the response, read as its template asks, scores the chosen one above the other."""
    case = parsed_case(answer)
    if case is None or case.role != "pair":
        return False
    scores = case.words.read_pair(response)
    chosen, rejected = scores if case.chosen_first else scores[::-1]
    return chosen > rejected


def verdict_of(response: str) -> str | None:
    """`1` or `2`, the response that is scored higher, `tie`, or None, by whatever template."""
    for template in TEMPLATES.values():
        first, second = template.read_pair(response)
        if first == first:
            return "tie" if first == second else "1" if first > second else "2"
    return None
