"""Scorers: a policy's answers to a chunk of items, judged.

To add a scorer, write a function of engine, suite name, items and sampling that returns one
`Sample` for each item and sample, and a line in SCORERS.
"""

import math
from collections.abc import Callable, Sequence

from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Prompt, Sample
from posttrain.samples import generated
from posttrain.tasks import final_answer

Scorer = Callable[[Engine, str, Sequence[Item], Sampling], list[Sample]]


def verified(engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling) -> list[Sample]:
    """Generate, and ask the verifier of each item's task (math-verify for `math`)."""
    return generated(engine, suite, [item.prompt for item in items], sampling)


def exact_match(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """Generate, and compare texts: what follows the last `####`, else the whole response.

    Letter case and spacing do not count.
    """
    prompts = [item.prompt for item in items]
    return generated(engine, suite, prompts, sampling, same_text)


def same_text(prompt: Prompt, response: str) -> bool:
    """Whether a response says the answer word for word."""
    given = final_answer(response)
    return _plain(response if given is None else given) == _plain(prompt.answer)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def multiple_choice(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """Choose the option that is likeliest for its length; nothing is drawn.

    The options are not shown in the prompt. An option's score is the sum of the log-probs of its
    tokens as the assistant's whole turn (end-of-turn included), divided by its length in
    characters (`acc_norm` of lm-evaluation-harness); of equal scores the first option wins.
    """
    pairs = [(item.prompt.text, option) for item in items for option in item.options]
    logps = iter(engine.logps([p for p, _ in pairs], [option for _, option in pairs]))
    return [_choice(suite, item, [next(logps) for _ in item.options]) for item in items]


def _choice(suite: str, item: Item, logps: Sequence[Sequence[float]]) -> Sample:
    sums = [math.fsum(tokens) for tokens in logps]
    scores = [total / max(1, len(text)) for total, text in zip(sums, item.options, strict=True)]
    best = max(range(len(scores)), key=scores.__getitem__)
    return Sample(
        suite=suite,
        item_id=item.prompt.id,
        index=0,
        prompt=item.prompt.text,
        answer=item.prompt.answer,
        response=item.options[best],
        correct=float(item.options[best] == item.prompt.answer),
        tokens=len(logps[best]),
        truncated=False,
        difficulty=item.prompt.difficulty,
        prediction="ABCDEFGHIJKLMNOPQRSTUVWXYZ"[best],
        logp=round(sums[best], 4),
    )


SCORERS: dict[str, Scorer] = {
    "verified": verified,
    "exact_match": exact_match,
    "multiple_choice": multiple_choice,
}
