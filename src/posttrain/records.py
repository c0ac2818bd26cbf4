"""The rows that flow between stages. Frozen; an unknown or missing field is an error.

A row's id is a digest of its content, so the same row has the same id in every run.
"""

import hashlib
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


def content_id(*parts: str) -> str:
    """A stable 16-hex-digit id of the given texts."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


class Record(BaseModel):
    """One row of a dataset folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RawRow(Record):
    """A row as people or generators give it: a prompt, with an answer, a response or a pair.

    `task` names the verifier of the answer (`posttrain.rewards.verifiers`); `agreement` is the
    share of the annotators who gave the label that it has, where people did.
    """

    id: str
    source: str
    task: str
    prompt: str
    split: Literal["train", "eval"] = "train"
    answer: str | None = None
    response: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    difficulty: int | None = None
    agreement: float | None = Field(None, ge=0, le=1)

    @property
    def kind(self) -> Literal["prompts", "demonstrations", "preferences", "evaluation"]:
        """What the row can become: the name of curation's output port."""
        if self.split == "eval":
            return "evaluation"
        if self.chosen is not None or self.rejected is not None:
            return "preferences"
        return "prompts" if self.response is None else "demonstrations"

    @classmethod
    def of(
        cls,
        *,
        source: str,
        task: str,
        prompt: str,
        split: Literal["train", "eval"] = "train",
        answer: str | None = None,
        response: str | None = None,
        chosen: str | None = None,
        rejected: str | None = None,
        difficulty: int | None = None,
        agreement: float | None = None,
    ) -> Self:
        """Make a row and its content id."""
        texts = (source, prompt, answer or "", response or "", chosen or "", rejected or "")
        return cls(
            id=content_id(*texts),
            source=source,
            task=task,
            prompt=prompt,
            split=split,
            answer=answer,
            response=response,
            chosen=chosen,
            rejected=rejected,
            difficulty=difficulty,
            agreement=agreement,
        )


class Prompt(Record):
    """A question with a verifiable answer; `id` is the digest of task and text."""

    id: str
    text: str
    answer: str
    task: str
    source: str
    difficulty: int | None = None


class Demonstration(Record):
    """A response worth imitating. `reward` in [0, 1]; 1 is verified correct."""

    id: str
    prompt_id: str
    prompt: str
    response: str
    reward: float
    source: str
    difficulty: int | None = None


class Preference(Record):
    """Of two responses to one prompt, the better. `margin` >= 0 says by how much, if known."""

    id: str
    prompt_id: str
    prompt: str
    chosen: str
    rejected: str
    source: str
    difficulty: int | None = None
    margin: float | None = None


class Sample(Record):
    """One scored completion of one item of a suite; what paired tests and reports read.

    `judge` is the reward model's score where one was used; `logp` the sum of token log-probs;
    `category` the slice of the suite; `measures` what its metrics are made of, all finite.
    `sensitive` rows hold offensive text: no report shows them.
    """

    suite: str
    item_id: str
    index: int
    prompt: str
    answer: str
    response: str
    correct: float
    tokens: int
    truncated: bool
    difficulty: int | None = None
    judge: float | None = None
    prediction: str | None = None
    logp: float | None = None
    category: str | None = None
    measures: dict[str, float] | None = None
    sensitive: bool | None = None


class Score(Record):
    """One number of one suite with its 95% interval; `n` counts items, not samples."""

    suite: str
    metric: str
    value: float
    n: int
    stderr: float
    low: float
    high: float
