"""Judges that write: a score of one response, two scores of a pair, a score under criteria.

An answer that is truncated, missing or not in the template's form is no score: NaN, and counted.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from posttrain.reward_model.generative.templates import NO_SCORES, Template
from posttrain.reward_model.generative.writers import EngineWriter, Writer, Written

Read = TypeVar("Read")


class Reader:
    """Asks a writer and reads its answers; `tally` is the writer's, and holds what was unread."""

    def __init__(self, writer: Writer, template: Template, max_tokens: int) -> None:
        self.writer, self.template, self.max_tokens = writer, template, max_tokens

    @property
    def tally(self) -> Counter[str]:
        """What was asked and what became of it."""
        return self.writer.tally

    def ask(
        self,
        questions: Sequence[str],
        read: Callable[[str], Read],
        nothing: Read,
        max_tokens: int = 0,
    ) -> list[Read]:
        """The answers as read; `nothing` for one that is not there, not complete or not in form."""
        found = self.writer.write(questions, max_tokens or self.max_tokens) if questions else []
        return [self._read(answer, read, nothing) for answer in found]

    def _read(self, answer: Written | None, read: Callable[[str], Read], nothing: Read) -> Read:
        self.tally["asked"] += 1
        if answer is None:
            self.tally["unanswered"] += 1
            return nothing
        if answer.truncated:
            self.tally["truncated"] += 1
            return nothing
        value = read(answer.text)
        # NaN is not equal to itself, and so tells that a form was not there.
        unread = value is None or value != value or value == NO_SCORES
        self.tally["unparsed"] += unread
        return nothing if unread else value


class PointwiseJudge(Reader):
    """A score from 0 to 10 of one response."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """One score for each prompt and response."""
        questions = [
            self.template.score.format(query=prompt, response=response)
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        return self.ask(questions, self.template.read_score, math.nan)


class PairJudge(Reader):
    """Two scores of a pair, in the order in which it is shown; whoever asks swaps."""

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        """The first score minus the second."""
        questions = pair_questions(self.template.pair, prompts, firsts, seconds)
        found = self.ask(questions, self.template.read_pair, NO_SCORES)
        return [scores.first - scores.second for scores in found]


class VerdictJudge:
    """A pair by the chances of the two verdicts, for a policy that would not write a critique."""

    def __init__(self, writer: EngineWriter, template: Template) -> None:
        self.writer, self.template = writer, template

    @property
    def tally(self) -> Counter[str]:
        """What was asked and what became of it."""
        return self.writer.tally

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        """log p(`1`) - log p(`2`) in nats, each with the end of the turn."""
        questions = pair_questions(self.template.verdict, prompts, firsts, seconds)
        fitting = self.writer.fitting(list(dict.fromkeys(questions)), max_tokens=8)
        asked = [question for question in fitting for _ in self.template.verdicts]
        logps = self.writer.engine.logps(asked, list(self.template.verdicts) * len(fitting))
        totals = [math.fsum(row) for row in logps]
        margins = dict(
            zip(
                fitting,
                (a - b for a, b in zip(totals[::2], totals[1::2], strict=True)),
                strict=True,
            )
        )
        self.tally.update(
            asked=len(questions),
            requests=len(asked),
            prompt_tokens=2 * sum(fitting.values()),
            completion_tokens=sum(map(len, logps)),
            unanswered=sum(question not in fitting for question in questions),
        )
        return [margins.get(question, math.nan) for question in questions]


class CriteriaJudge(Reader):
    """CE-RM: criteria from the query alone, then a score of each response under them.

    One set of criteria serves a query for the judge's whole life, whatever the number of responses;
    a query whose criteria are not in form scores nothing (arXiv:2601.20327).
    """

    def __init__(
        self, writer: Writer, template: Template, max_tokens: int, criteria_tokens: int
    ) -> None:
        super().__init__(writer, template, max_tokens)
        self.criteria_tokens = criteria_tokens
        self.criteria: dict[str, str] = {}

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """One score for each prompt and response."""
        self._learn(dict.fromkeys(prompts))
        known = [at for at, prompt in enumerate(prompts) if prompt in self.criteria]
        questions = [
            self.template.evaluation.format(
                query=prompts[at], criteria=self.criteria[prompts[at]], response=responses[at]
            )
            for at in known
        ]
        scores = [math.nan] * len(prompts)
        found = self.ask(questions, self.template.read_score, math.nan)
        for at, score in zip(known, found, strict=True):
            scores[at] = score
        return scores

    def _learn(self, prompts: Iterable[str]) -> None:
        """Have criteria written for the queries that have none; a failure may be mended later."""
        fresh = [prompt for prompt in prompts if prompt not in self.criteria]
        texts = [self.template.criteria.format(query=prompt) for prompt in fresh]
        found = self.ask(texts, self.template.read_criteria, None, self.criteria_tokens)
        self.tally["criteria"] += len(fresh)
        pairs = zip(fresh, found, strict=True)
        self.criteria.update({prompt: criteria for prompt, criteria in pairs if criteria})


def pair_questions(
    words: str, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
) -> list[str]:
    """The template's words over each pair, in the order given."""
    return [
        words.format(query=prompt, first=first, second=second)
        for prompt, first, second in zip(prompts, firsts, seconds, strict=True)
    ]
