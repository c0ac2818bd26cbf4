"""Scorers: a policy's answers to a chunk of items, judged.

To add a scorer, write a function of engine, suite name, items and sampling that returns one
`Sample` for each item and sample, and a line in SCORERS.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from posttrain.benchmark.abstention import bounce
from posttrain.benchmark.choices import multiple_choice, truthful_choice
from posttrain.benchmark.following import instructions
from posttrain.benchmark.judged import JUDGED
from posttrain.benchmark.programs import programs
from posttrain.benchmark.refusals import refusals
from posttrain.benchmark.steps import steps_by_policy
from posttrain.benchmark.suites.harness import Harness
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.engines import Engine, Sampling
from posttrain.errors import ConfigError, Fault
from posttrain.records import Prompt, Sample
from posttrain.reward_model.costs import spending
from posttrain.reward_model.protocol import Judge
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


def lm_eval(
    engine: Engine,
    suite: str,
    items: Sequence[Item],
    sampling: Sampling,
    *,
    harness: Harness,
    headline: str,
    longest: int | None = None,
) -> list[Sample]:
    """The engine answers what lm-evaluation-harness asks, and the harness measures it."""
    from posttrain.benchmark.harness import EngineLM, harness_rows

    model = EngineLM(engine, sampling, longest)
    return harness_rows(model, suite, items, harness, headline)


SCORERS: dict[str, Callable[..., list[Sample]]] = {
    "verified": verified,
    "exact_match": exact_match,
    "multiple_choice": multiple_choice,
    "truthful_choice": truthful_choice,
    "instructions": instructions,
    "refusals": refusals,
    "steps": steps_by_policy,
    "bounce": bounce,
    "programs": programs,
    "lm_eval": lm_eval,
}

LIKELIHOOD = frozenset(("multiple_choice", "truthful_choice", "steps"))
"""Scorers that draw nothing."""

OWN_WAY = LIKELIHOOD | {"lm_eval"}
"""Scorers that do not draw as the stage says."""


def needs_judge(suite: Suite) -> bool:
    """Whether nothing but a judge can score the suite."""
    return suite.scorer not in SCORERS and suite.scorer in JUDGED


def scorers_of(
    suites: Sequence[Suite], folder: Path | None
) -> tuple[dict[str, Scorer], Callable[[], dict[str, float]]]:
    """The scorer of each suite, with the judge of a folder where one can use it, and what tells how
    much that judge was asked since.

    Raises ConfigError for every suite that only a judge could score, before the judge is loaded.
    """
    if folder is None:
        faults = [judge_wanted(suite) for suite in suites if needs_judge(suite)]
        if faults:
            raise ConfigError(*faults)
        return {suite.name: scorer_of(suite, None) for suite in suites}, dict
    from posttrain.reward_model.loading import load_judge

    judge = load_judge(folder) if any(suite.scorer in JUDGED for suite in suites) else None
    return {suite.name: scorer_of(suite, judge) for suite in suites}, partial(spending, judge)


def scorer_of(suite: Suite, judge: Judge | None) -> Scorer:
    """The suite's scorer, of the judge where there is one that it can use."""
    if judge is not None and suite.scorer in JUDGED:
        return JUDGED[suite.scorer](judge)
    return partial(SCORERS[suite.scorer], **suite.scoring)


def judge_wanted(suite: Suite) -> Fault:
    """What to tell of a suite that needs a judge and has none."""
    return Fault(
        f"suite `{suite.name}` needs a judge",
        f"benchmark.suites.{suite.name}",
        "no rule can tell whether its responses are right",
        "give --judge, the folder of a judge that passed its panel, or drop the suite",
    )
