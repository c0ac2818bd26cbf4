"""Who writes a judge's answers: an engine over a policy, or a server; and what that costs.

A writer never raises for one answer's sake: what cannot be had is None, and counted.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from posttrain.engines import Engine, Sampling
from posttrain.policies import Policy, batch_ids, chat_texts


class Written(NamedTuple):
    """An answer; `truncated`: it ran out of room, so that its last words are not its conclusion."""

    text: str
    truncated: bool


class Writer(Protocol):
    """`tally` counts what was asked and what became of it, over the writer's life."""

    tally: Counter[str]

    def write(self, questions: Sequence[str], max_tokens: int) -> list[Written | None]:
        """An answer to each question, each of at most so many tokens; None where there is none."""


class EngineWriter:
    """Greedy answers of a policy. A question without room for its answer is not asked."""

    def __init__(self, policy: Policy, engine: Engine) -> None:
        self.policy, self.engine = policy, engine
        self.tally: Counter[str] = Counter()

    def write(self, questions: Sequence[str], max_tokens: int) -> list[Written | None]:
        texts = list(dict.fromkeys(questions))
        fitting = self.fitting(texts, max_tokens)
        sampling = Sampling(temperature=0.0, max_new_tokens=max_tokens)
        drawn = self.engine.generate(list(fitting), sampling) if fitting else []
        found = {
            text: Written(completion.text, completion.truncated)
            for text, (completion,) in zip(fitting, drawn, strict=True)
        }
        self.tally.update(
            requests=len(fitting),
            too_long=len(texts) - len(fitting),
            prompt_tokens=sum(fitting.values()),
            completion_tokens=sum(len(one.tokens) for (one,) in drawn),
        )
        return [found.get(text) for text in questions]

    def fitting(self, texts: Sequence[str], max_tokens: int) -> dict[str, int]:
        """The texts that leave so many tokens of the context, with their own."""
        config = self.policy.model.config.get_text_config()
        context = getattr(config, "max_position_embeddings", None)
        ids = batch_ids(self.policy.tokenizer, chat_texts(self.policy.tokenizer, list(texts)))
        lengths = {text: len(own) for text, own in zip(texts, ids, strict=True)}
        return {t: n for t, n in lengths.items() if context is None or n + max_tokens <= context}
