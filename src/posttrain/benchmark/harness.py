"""The scorer of lm-evaluation-harness's tasks: our engine answers, the harness measures.

The `LM` that the harness asks is an engine; prompts are users' turns, which the engine writes with
the policy's own chat template.
"""

import json
import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from lm_eval.api.model import LM
from lm_eval.models.utils import normalize_gen_kwargs

from posttrain.benchmark.choices import likeliest
from posttrain.benchmark.suites.harness import (
    NO_FILTER,
    Asked,
    Harness,
    metric_name,
    one_turn,
)
from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Completion, Engine, Sampling
from posttrain.errors import ConfigError, Fault
from posttrain.records import Sample


class EngineLM(LM):  # type: ignore[misc]
    """An engine as the harness's model; `completions` keeps what it wrote, by item."""

    apply_chat_template = staticmethod(one_turn)
    tokenizer_name = "the engine's own"

    def __init__(self, engine: Engine, sampling: Sampling, longest: int | None = None) -> None:
        super().__init__()
        self.engine = engine
        self.sampling = sampling
        self.longest = longest
        self.completions: dict[int, Completion] = {}

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The responses, cut before the first text of `until`; greedy unless the task says else."""
        found = [""] * len(requests)
        places: dict[str, list[int]] = {}
        for at, request in enumerate(requests):
            how = json.dumps(request.args[1], sort_keys=True, default=str)
            places.setdefault(how, []).append(at)
        for chosen in places.values():
            told = normalize_gen_kwargs(requests[chosen[0]].args[1], self.sampling.max_new_tokens)
            prompts = [requests[at].args[0] for at in chosen]
            drawn = self.engine.generate(prompts, self._drawn(told))
            for at, [completion] in zip(chosen, drawn, strict=True):
                self.completions[requests[at].doc_id] = completion
                found[at] = cut(completion.text, told["until"])
        return found

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Log-probs in nats of the continuations, without the end of turn. Whether decoding would
        write them is not told: no metric of the tasks that are run asks for it."""
        contexts, continuations = zip(*(request.args for request in requests), strict=True)
        logps = self.engine.logps(contexts, continuations)
        return [(math.fsum(tokens[:-1]), False) for tokens in logps]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """No task that is run asks for it."""
        raise ConfigError(
            Fault("perplexity of a text", "lm_eval", "engines answer prompts", "take another task")
        )

    def _drawn(self, how: dict[str, Any]) -> Sampling:
        """The task's decoding; `longest` stands in for its longest response."""
        return self.sampling._replace(
            samples=1,
            temperature=float(how["temperature"]),
            top_p=float(how.get("top_p", 1.0)),
            top_k=int(how.get("top_k", 0)),
            max_new_tokens=self.longest or int(how["max_gen_toks"]),
        )


def cut(text: str, until: Sequence[str]) -> str:
    """The text before the first of `until`."""
    ends = [at for each in until if each and (at := text.find(each)) >= 0]
    return text[: min(ends)] if ends else text


def harness_rows(
    model: EngineLM, suite: str, items: Sequence[Item], harness: Harness, headline: str
) -> list[Sample]:
    """Ask the model what the harness asks, and let the harness filter and measure the answers."""
    asked = harness.asked[harness.task]
    # Copies: answers are appended to a request, and a chunk may be asked again.
    requests = {
        item.prompt.id: [fresh(request) for request in asked.requests[item.prompt.id]]
        for item in items
    }
    every = [request for own in requests.values() for request in own]
    for request, answer in zip(every, getattr(model, every[0].request_type)(every), strict=True):
        request.resps.append(answer)
    part = copy(asked.task)
    part._instances = every
    part.apply_filters()
    return [row_of(suite, item, requests[item.prompt.id], asked, model, headline) for item in items]


def fresh(request: Any) -> Any:
    """A request without answers."""
    found = copy(request)
    found.resps, found.filtered_resps = [], {}
    return found


def row_of(
    suite: str, item: Item, requests: Sequence[Any], asked: Asked, model: EngineLM, headline: str
) -> Sample:
    """One item's row: `correct` is the headline metric, `measures` hold all of them."""
    measures = measured(asked.task, requests)
    value = measures.get(headline, math.nan)
    if value > 1 or value < 0:
        raise ConfigError(
            Fault(
                f"metric `{headline}` is no share",
                f"benchmark.suites.{suite}.metric",
                f"it is {value:g} of an item, and a suite's score lies between 0 and 1",
                "choose another metric of the task",
            )
        )
    scored = math.isfinite(value)
    done = model.completions.get(requests[0].doc_id)
    best = None
    if done is None:
        sums = [request.resps[0][0] for request in requests]
        best = likeliest(sums)
        scored = scored and best is not None
    kept = headline.partition(".")[2] or NO_FILTER
    filtered = requests[0].filtered_resps.get(kept)
    told = filtered if done is not None else None if best is None else item.options[best].strip()
    return Sample(
        suite=suite,
        item_id=item.prompt.id,
        index=0,
        prompt=item.prompt.text,
        answer=item.prompt.answer,
        response=done.text if done else item.options[best] if best is not None else "",
        correct=value if scored else 0.0,
        tokens=len(done.tokens) if done else 1,
        truncated=done.truncated if done else False,
        prediction=None if told is None else str(told),
        logp=round(math.fsum(done.logps), 4) if done else None,
        measures=measures if scored else {"unscored": 1.0},
    )


def measured(task: Any, requests: Sequence[Any]) -> dict[str, float]:
    """What the harness makes of one item, by metric and filter; nothing where it fails on it."""
    found: dict[str, float] = {}
    for answers in requests[0].filtered_resps:
        given = [request.filtered_resps[answers] for request in requests]
        try:
            metrics = task.process_results(requests[0].doc, given)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return {}
        for name, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                found[metric_name(name, answers)] = float(value)
    return found
