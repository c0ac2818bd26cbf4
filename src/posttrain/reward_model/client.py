"""A writer behind the chat completions of any OpenAI-compatible server, such as vLLM's.

A question is asked once, however many want its answer: answers lie in a folder under a digest of
all that was sent (never the key) and of where. Questions go out several at a time. A failure is no
answer and is counted by its kind; after PATIENCE in a row the rest of a call is not asked.
"""

import hashlib
import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.engines.server import Server, Unanswered
from posttrain.errors import ConfigError
from posttrain.reward_model.generative.writers import Written

log = logging.getLogger(__name__)

PATIENCE = 8
"""Questions that fail in a row before the server counts as away for this call (assumed)."""

PATH = "/v1/chat/completions"


class Prices(NamedTuple):
    """Per million tokens, in whatever money; so many tokens cost as many millionths of it."""

    prompt: float = 0.0
    completion: float = 0.0


class ChatWriter:
    """Asks `model` at `server`; `options` are sent with every question (temperature, seed)."""

    def __init__(
        self,
        server: Server,
        model: str,
        *,
        options: Mapping[str, Any],
        concurrency: int,
        cache: Path | None,
        prices: Prices = Prices(),
    ) -> None:
        self.server, self.model, self.options = server, model, options
        self.concurrency, self.cache, self.prices = concurrency, cache, prices
        self.tally: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._failed = 0

    def write(self, questions: Sequence[str], max_tokens: int) -> list[Written | None]:
        """An answer to each question; see `Writer`."""
        texts = list(dict.fromkeys(questions))
        self._failed = 0
        with ThreadPoolExecutor(self.concurrency) as threads:
            answers = list(threads.map(lambda text: self._answer(text, max_tokens), texts))
        found = dict(zip(texts, answers, strict=True))
        return [found[text] for text in questions]

    def _answer(self, text: str, max_tokens: int) -> Written | None:
        message = {"role": "user", "content": text}
        body = {"model": self.model, "messages": [message], "max_tokens": max_tokens}
        body |= dict(self.options)
        place = self._place(body)
        known = read_answer(place)
        if known is not None:
            self._count(cache_hits=1)
            return known
        with self._lock:
            if self._failed >= PATIENCE:
                self.tally["given_up"] += 1
                return None
        return self._sent(body, place)

    def _sent(self, body: dict[str, Any], place: Path | None) -> Written | None:
        try:
            [answer] = self.server.ask(PATH, body)
        except Unanswered as error:
            self._failure(error.outcome, error)
            return None
        except ConfigError as error:
            self._failure("refused", error)
            return None
        written = understood(answer)
        if written is None:
            self._failure("malformed", f"no answer in {str(answer)[:100]!r}")
            return None
        prompt, completion = used_tokens(answer)
        self._count(requests=1, prompt_tokens=prompt, completion_tokens=completion)
        cost = prompt * self.prices.prompt + completion * self.prices.completion
        with self._lock:
            self._failed = 0
            self.tally["cost_micros"] += round(cost)
        write_answer(place, written)
        return written

    def _failure(self, outcome: str, why: object) -> None:
        """Count it; the first of a call is told."""
        with self._lock:
            self._failed += 1
            first = self._failed == 1
        self._count(requests=1, **{outcome: 1})
        if first:
            log.warning("the judge's server gave no answer (%s): %s", outcome, str(why)[:500])

    def _count(self, **counts: int) -> None:
        with self._lock:
            self.tally.update(counts)

    def _place(self, body: Mapping[str, Any]) -> Path | None:
        """Where an answer to this lies, if it does."""
        if self.cache is None:
            return None
        text = json.dumps([self.server.url, body], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        return self.cache / key[:2] / f"{key}.json"


def understood(answer: Any) -> Written | None:
    """The text of a chat completion; None where there is no such thing in it.

    Only `stop` says that an answer came to its end.
    """
    try:
        [choice, *_] = answer["choices"]
        text, ended = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Written(text, truncated=ended != "stop") if isinstance(text, str) else None


def used_tokens(answer: Any) -> tuple[int, int]:
    """Tokens of the question and of the answer, as the server counts them; 0 where it does not."""
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    found = [counts.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (n if isinstance(n, int) and n > 0 else 0 for n in found)
    return prompt, completion


def read_answer(place: Path | None) -> Written | None:
    """The answer that lies there; None where none does, or half of one."""
    if place is None:
        return None
    try:
        text, truncated = json.loads(place.read_bytes())
    except (OSError, ValueError, TypeError):
        return None
    return Written(str(text), bool(truncated))


def write_answer(place: Path | None, written: Written) -> None:
    """Keep an answer; a folder that cannot be written costs the cache, not the answer."""
    if place is None:
        return
    partial = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(written), encoding="utf-8")
        partial.replace(place)
    except OSError as error:
        log.warning("an answer of the judge's server was not kept: %s", error)
