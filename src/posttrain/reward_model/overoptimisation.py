"""Over-optimisation: what choosing harder by a judge does to what is really right.

N candidates of each held-out prompt are drawn once from the policy; a verifier says which are
right. For every n up to N the best of n by the judge has an expected judge's score and an expected
share that is right, at a divergence from the policy of at most log n - (n - 1)/n nats
(arXiv:2210.10760, Eq. 3; arXiv:2401.01879 shows that it is a bound).
Shapes: I prompts, N candidates, K values of n, R resamples.
"""

from collections.abc import Sequence
from itertools import combinations
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from posttrain.errors import ConfigError, Fault
from posttrain.plugins import Plugin, build
from posttrain.statistics import (
    Array,
    bootstrap_means,
    generator,
    judge_at_k,
    powers_of_two,
)

if TYPE_CHECKING:
    from posttrain.benchmark.suites import Item, Suite
    from posttrain.engines import Sampling
    from posttrain.reward_model.panel import Panel
    from posttrain.reward_model.protocol import Judge

SAMPLES, LONGEST = 16, 256
"""Candidates of a prompt, and tokens of one, where the suite says nothing: as in `best_of_n`."""
RESAMPLES = 2000
WHERE = "reward_model.overoptimisation"


class Point(BaseModel):
    """The best of `n`: `kl` in nats, `judge` the mean score, `gold` the share that is right with
    its 95% interval over prompts; `below`: the smaller n that were surely right more often though
    the judge liked them less."""

    model_config = ConfigDict(frozen=True)

    n: int
    kl: float
    judge: float
    gold: float
    low: float
    high: float
    below: list[int]


class Overoptimisation(BaseModel):
    """The curve. `unscored` candidates are never chosen, and count with the lowest score of their
    prompt; a prompt without any score is left out. `digest` is that of the prompts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    digest: str
    prompts: int
    samples: int
    unscored: int
    points: list[Point]

    @property
    def reason(self) -> str | None:
        """What to tell where gold falls while the judge's score rises, of the largest such n."""
        worst = next((point for point in reversed(self.points) if point.below), None)
        if worst is None:
            return None
        best = max((p for p in self.points if p.n in worst.below), key=lambda p: p.gold)
        return (
            f"over-optimisation: the best of {worst.n} by the judge is right {worst.gold:.1%} of"
            f" the time, the best of {best.n} {best.gold:.1%}, and the judge likes it more"
        )


class Candidates(NamedTuple):
    """A suite and its prompts, read before anything is trained."""

    suite: "Suite"
    items: "list[Item]"


def candidates_of(plugin: Plugin | None, data_folder: str) -> Candidates | None:
    """The prompts of the chosen suite; ConfigError where no verifier tells its right answers."""
    if plugin is None:
        return None
    from posttrain.benchmark.suites import CHOICES, Place

    suite = build(CHOICES, plugin, WHERE)()
    if suite.scorer != "verified":
        why = "right answers must be told by the verifier of a task, without a judge"
        mend = "take a suite such as arithmetic, gsm8k or math"
        raise ConfigError(Fault(f"`{suite.name}` cannot show over-optimisation", WHERE, why, mend))
    return Candidates(suite, suite.items(Place(None, data_folder)))


def optimised(
    panel: "Panel",
    candidates: Candidates | None,
    policy: Path,
    judge: "Judge",
    seed: int,
) -> "Panel":
    """The panel with the curve of the policy that the judge came from, and what it says against
    the judge."""
    if candidates is None:
        return panel
    from posttrain.benchmark.suites.suite import items_digest
    from posttrain.engines import Sampling

    suite = candidates.suite
    sampling = Sampling(
        samples=suite.samples or SAMPLES,
        max_new_tokens=suite.max_new_tokens or LONGEST,
        seed=seed,
    )
    correct_IN, score_IN = drawn(candidates, policy, judge, sampling)
    found = Overoptimisation(
        suite=suite.name,
        digest=items_digest(candidates.items),
        prompts=len(score_IN),
        samples=sampling.samples,
        unscored=int((~np.isfinite(score_IN)).sum()),
        points=curve(correct_IN, score_IN, seed),
    )
    reasons = panel.reasons + ([found.reason] if found.reason else [])
    update = {"overoptimisation": found, "reasons": reasons, "passed": not reasons}
    return panel.model_copy(update=update)


def drawn(
    candidates: Candidates, policy: Path, judge: "Judge", sampling: "Sampling"
) -> tuple[Array, Array]:
    """Correctness and the judge's scores of `sampling.samples` responses to each prompt [I, N]."""
    from posttrain.engines.transformers import TransformersEngine
    from posttrain.policies import load_policy
    from posttrain.samples import generated

    prompts = [item.prompt for item in candidates.items]
    engine = TransformersEngine(load_policy(policy))
    rows = generated(engine, candidates.suite.name, prompts, sampling)
    scores = judge.score([row.prompt for row in rows], [row.response for row in rows])
    shape = (len(prompts), sampling.samples)
    correct_IN = np.array([row.correct for row in rows], dtype=float).reshape(shape)
    return correct_IN, np.array(scores, dtype=float).reshape(shape)


def curve(correct_IN: Array, score_IN: Array, seed: int) -> list[Point]:
    """The points of all n, unbiased from one draw: means over all n-subsets of the candidates.

    n is surely below a smaller one when the 95% interval of their paired difference over prompts
    is, at the level of Bonferroni for all pairs.
    """
    some_I = np.isfinite(score_IN).any(1)
    correct_IN, score_IN = correct_IN[some_I], score_IN[some_I]
    if not len(score_IN):
        return []
    scored_IN = np.isfinite(score_IN)
    lowest_I1 = np.where(scored_IN, score_IN, np.inf).min(1, keepdims=True)
    ranked_IN = np.where(scored_IN, score_IN, -np.inf)
    ns = powers_of_two(score_IN.shape[1])
    gold_IK = judge_at_k(np.where(scored_IN, correct_IN, 0.0), ranked_IN, ns)
    judge_K = judge_at_k(np.where(scored_IN, score_IN, lowest_I1), ranked_IN, ns).mean(0)
    means_RK = bootstrap_means(gold_IK, RESAMPLES, generator(seed, "overoptimisation"))
    low_K, high_K = np.quantile(means_RK, [0.025, 0.975], axis=0)
    below = surely_below(ns, means_RK, judge_K)
    columns = zip(ns, judge_K, gold_IK.mean(0), low_K, high_K, below, strict=True)
    return [
        Point(n=n, kl=kl_of(n), judge=judge, gold=gold, low=low, high=high, below=smaller)
        for n, judge, gold, low, high, smaller in columns
    ]


def surely_below(ns: Sequence[int], means_RK: Array, judge_K: Array) -> list[list[int]]:
    """For each n the smaller ones that are right more often and that the judge likes less."""
    pairs = list(combinations(range(len(ns)), 2))
    found: list[list[int]] = [[] for _ in ns]
    for small, large in pairs:
        highest = np.quantile(means_RK[:, large] - means_RK[:, small], 1 - 0.025 / len(pairs))
        if highest < 0 and judge_K[large] > judge_K[small]:
            found[large].append(ns[small])
    return found


def kl_of(n: int) -> float:
    """The divergence of the best of n from the policy, in nats, at most: log n - (n - 1)/n."""
    return log(n) - (n - 1) / n


def prompts_changed(panel: "Panel", plugin: Plugin | None, data_folder: str) -> str | None:
    """Why a stored curve no longer holds: the suite's prompts are others now. Else None."""
    candidates, stored = candidates_of(plugin, data_folder), panel.overoptimisation
    if candidates is None:
        return None
    from posttrain.benchmark.suites.suite import items_digest

    same = stored is not None and stored.digest == items_digest(candidates.items)
    return None if same else f"the prompts of {candidates.suite.name} have changed"
