"""How a judge's answers to a panel set are counted, alike for pointwise and pairwise judges.

A win is strict: a tie is lost, and so is an answer that is not a number.
Shapes: I items, C chosen and R rejected responses of one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from posttrain.reward_model.agreement import cohen_kappa, fleiss_kappa
from posttrain.reward_model.panel_sets.items import Measured, Pair, Ranking
from posttrain.reward_model.protocol import AnyJudge, PairwiseJudge
from posttrain.reward_model.results import Share, share_of


class Verdict(NamedTuple):
    """By how much the first response of a pair beats the second: as shown, and when it is shown
    second. A pointwise judge says the same both times."""

    shown: float
    swapped: float

    def won(self, better: int) -> float:
        """Mean over both orders of picking the better one, 1 or 2."""
        sign = 3 - 2 * better
        return fmean((sign * self.shown > 0, sign * self.swapped > 0))

    def on_balance(self, better: int) -> bool:
        """Whether more orders pick the better one than the other (JudgeBench's rule)."""
        sign = 3 - 2 * better
        return sum(sides(sign * margin) for margin in self) > 0

    @property
    def word(self) -> int:
        """1 or 2 where both orders, or one of them alone, name a winner; 0 for a tie or a
        contradiction."""
        balance = sides(self.shown) + sides(self.swapped)
        return 0 if balance == 0 else 1 if balance > 0 else 2


def sides(margin: float) -> int:
    """1, 0 or -1; 0 where the margin is not a number."""
    return (margin > 0) - (margin < 0)


def verdicts(judge: AnyJudge, pairs: Sequence[Pair]) -> list[Verdict]:
    """Each pair in both orders."""
    prompts, firsts, seconds, *_ = map(list, zip(*pairs, strict=True))
    if isinstance(judge, PairwiseJudge):
        shown = judge.compare(prompts, firsts, seconds)
        swapped = judge.compare(prompts, seconds, firsts)
        return [Verdict(a, -b) for a, b in zip(shown, swapped, strict=True)]
    scores = judge.score(prompts * 2, firsts + seconds)
    gaps = [a - b for a, b in zip(scores[: len(pairs)], scores[len(pairs) :], strict=True)]
    return [Verdict(gap, gap) for gap in gaps]


def places(found: Sequence[Verdict]) -> dict[str, float]:
    """`agreement`: share of pairs with the same winner in both orders; `first_wins`: share of all
    showings in which the first place wins, 0.5 without a liking for places."""
    same = fmean(sides(v.shown) == sides(v.swapped) for v in found)
    # Shown second, the first response wins when the first place loses.
    won = [place for v in found for place in (sides(v.shown), -sides(v.swapped))]
    return {"agreement": same, "first_wins": fmean((1 + place) / 2 for place in won)}


def pair_accuracy(judge: AnyJudge, pairs: Sequence[Pair]) -> Measured:
    """Pairs with a better response: accuracy on balance of both orders, and on their mean."""
    found = verdicts(judge, pairs)
    rows = list(zip(pairs, found, strict=True))
    right = [v.on_balance(pair.better) for pair, v in rows]
    overall = share_of(right)
    scores = {
        "accuracy": overall.accuracy,
        "mean_of_orders": fmean(v.won(pair.better) for pair, v in rows),
    }
    if isinstance(judge, PairwiseJudge):
        scores |= places(found)
    slices = by_name(zip([pair.slice for pair in pairs], right, strict=True))
    return Measured("accuracy", overall, scores, slices, unscored(found))


def human_agreement(judge: AnyJudge, pairs: Sequence[Pair]) -> Measured:
    """Agreement with annotators who may call a tie (`better` is their majority's word).

    `kappa`: with the majority; `annotator_kappa`: the mean with one annotator each, to be held
    against `human_kappa`, the mean between two of them, and Fleiss' kappa of them all.
    """
    found = verdicts(judge, pairs)
    words = [v.word for v in found]
    right = [word == pair.better for word, pair in zip(words, pairs, strict=True)]
    decided = [r for r, pair in zip(right, pairs, strict=True) if pair.better]
    columns = list(zip(*(pair.votes for pair in pairs), strict=True))
    between = [cohen_kappa(a, b) for at, a in enumerate(columns) for b in columns[at + 1 :]]
    scores = {
        "agreement_with_majority": fmean(right),
        "accuracy_without_ties": fmean(decided) if decided else math.nan,
        "kappa": cohen_kappa(words, [pair.better for pair in pairs]),
        "annotator_kappa": fmean(cohen_kappa(words, column) for column in columns),
        "human_kappa": fmean(between),
        "human_fleiss_kappa": fleiss_kappa([pair.votes for pair in pairs]),
        "human_unanimous": fmean(len(set(pair.votes)) == 1 for pair in pairs),
        "ties": fmean(word == 0 for word in words),
        "human_ties": fmean(pair.better == 0 for pair in pairs),
    }
    if isinstance(judge, PairwiseJudge):
        scores |= places(found)
    named = [
        name
        for pair in pairs
        for name in (pair.slice, "unanimous" if len(set(pair.votes)) == 1 else "two of three")
    ]
    doubled = [r for r in right for _ in range(2)]
    slices = by_name(zip(named, doubled, strict=True))
    return Measured("agreement_with_majority", share_of(right), scores, slices, unscored(found))


def margins(judge: AnyJudge, rankings: Sequence[Ranking]) -> list[list[list[float]]]:
    """By how much each chosen response beats each rejected one: I lists of C lists of R."""
    if isinstance(judge, PairwiseJudge):
        asked = [(r.prompt, c, x) for r in rankings for c in r.chosen for x in r.rejected]
        answers = iter(judge.compare(*map(list, zip(*asked, strict=True))))
        return [[[next(answers) for _ in r.rejected] for _ in r.chosen] for r in rankings]
    scored = [scores_of(*row) for row in zip(rankings, scores(judge, rankings), strict=True)]
    return [[[c - x for x in rejected] for c in chosen] for chosen, rejected in scored]


def scores(judge: AnyJudge, rankings: Sequence[Ranking]) -> list[dict[str, float]]:
    """The score of each response of a ranking, by its text; equal ones are asked once."""
    assert not isinstance(judge, PairwiseJudge)
    asked = list(
        dict.fromkeys((r.prompt, text) for r in rankings for text in (*r.chosen, *r.rejected))
    )
    prompts, texts = map(list, zip(*asked, strict=True))
    found = dict(zip(asked, judge.score(prompts, texts), strict=True))
    return [{t: found[r.prompt, t] for t in (*r.chosen, *r.rejected)} for r in rankings]


def scores_of(ranking: Ranking, found: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """The scores of the chosen and of the rejected responses."""
    return [found[text] for text in ranking.chosen], [found[text] for text in ranking.rejected]


def by_name(rows: Iterable[tuple[str, bool]]) -> dict[str, Share]:
    """Shares by name, sorted."""
    found: dict[str, list[bool]] = {}
    for name, right in rows:
        found.setdefault(name, []).append(right)
    return {name: share_of(found[name]) for name in sorted(found)}


def unscored(found: Iterable[Iterable[float]]) -> int:
    """Items of which an answer is not a number."""
    return sum(any(math.isnan(value) for value in row) for row in found)
