"""Selectors: the rows of a curated set in, those that a run is to use out.

To add a selector, write a function of the rows, a `random.Random` and the `Measures` that it may
ask (positional), its options (keyword-only), in a file here, and add a line to SELECTORS. It is
first called with no rows, and must ask then for what it will ask of rows, so that an input that
was not given is told before any work. The order of what it returns is that of the output.
"""

import random
from collections.abc import Callable, Iterable

from posttrain.records import Record
from posttrain.select.measures import Measures
from posttrain.select.selectors.bands import entropy_band, perplexity_band
from posttrain.select.selectors.drive import drive
from posttrain.select.selectors.history import historical_variance, lim
from posttrain.select.selectors.k_center import k_center
from posttrain.select.selectors.learnability import learnability
from posttrain.select.selectors.pairs import margin_band, seed_agreement
from posttrain.select.selectors.pass_rate_band import pass_rate_band
from posttrain.select.selectors.perspectives import perspectives
from posttrain.select.selectors.plain import balanced, by_task, everything, first, hardest, sample
from posttrain.select.selectors.rank_consistency import rank_consistency
from posttrain.select.selectors.salient_skills import salient_skills
from posttrain.select.selectors.step_filter import step_filter
from posttrain.select.selectors.weak_to_strong import weak_to_strong

Selector = Callable[[Iterable[Record], random.Random, Measures], Iterable[Record]]

SELECTORS: dict[str, Callable[..., Iterable[Record]]] = {
    "all": everything,
    "first": first,
    "sample": sample,
    "balanced": balanced,
    "hardest": hardest,
    "by_task": by_task,
    "pass_rate_band": pass_rate_band,
    "learnability": learnability,
    "drive": drive,
    "entropy_band": entropy_band,
    "perplexity_band": perplexity_band,
    "seed_agreement": seed_agreement,
    "margin_band": margin_band,
    "k_center": k_center,
    "historical_variance": historical_variance,
    "lim": lim,
    "salient_skills": salient_skills,
    "rank_consistency": rank_consistency,
    "perspectives": perspectives,
    "step_filter": step_filter,
    "weak_to_strong": weak_to_strong,
}
