"""What each kind of raw row becomes."""

from collections.abc import Callable

from posttrain.records import Demonstration, Preference, Prompt, RawRow, Record, content_id
from posttrain.rewards.verifiers import verify


def prompt_of(row: RawRow) -> Prompt:
    return Prompt(
        id=content_id(row.task, row.prompt),
        text=row.prompt,
        answer=row.answer or "",
        task=row.task,
        source=row.source,
        difficulty=row.difficulty,
    )


def demonstration_of(row: RawRow) -> Demonstration:
    """Its reward is 1 where the response was verified, else 0: not known to be right."""
    response, prompt_id = row.response or "", content_id(row.task, row.prompt)
    verified = row.answer is not None and verify(row.task, row.prompt, row.answer, response)
    return Demonstration(
        id=content_id(prompt_id, response),
        prompt_id=prompt_id,
        prompt=row.prompt,
        response=response,
        reward=float(verified),
        source=row.source,
        difficulty=row.difficulty,
    )


def preference_of(row: RawRow) -> Preference:
    chosen, rejected = row.chosen or "", row.rejected or ""
    prompt_id = content_id(row.task, row.prompt)
    return Preference(
        id=content_id(prompt_id, chosen, rejected),
        prompt_id=prompt_id,
        prompt=row.prompt,
        chosen=chosen,
        rejected=rejected,
        source=row.source,
        difficulty=row.difficulty,
    )


MAKERS: dict[str, Callable[[RawRow], Record]] = {
    "evaluation": prompt_of,
    "demonstrations": demonstration_of,
    "preferences": preference_of,
    "prompts": prompt_of,
}
