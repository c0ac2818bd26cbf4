"""Examining a finished judge: scores of held-out pairs, and what must not change a score."""

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from posttrain.records import Preference
from posttrain.reward_model.judge import RewardModelJudge, TokenPair
from posttrain.reward_model.panel import (
    Bos,
    Invariance,
    OrderSwap,
    Panel,
    ScoredPair,
    Thresholds,
    judge_the_judge,
)
from posttrain.reward_model.panel_sets import PanelSet
from posttrain.reward_model.protocol import AnyJudge, PairwiseJudge

PROBED = 128
MARKUP = re.compile(r"(?m)^\s{0,3}#{1,6} |^\s*(?:[-*+]|\d+\.) |\*\*[^*\n]+\*\*|^```|^\s*\|.*\|")


def examine(
    judge: AnyJudge,
    pairs: Sequence[TokenPair],
    trained: Any,
    thresholds: Thresholds,
    sets: Mapping[str, PanelSet] | None = None,
) -> Panel:
    """The panel of any judge: by its tokens where it reads tokens, else by its answers alone."""
    if isinstance(judge, RewardModelJudge):
        own = judge.tokenised([pair.row for pair in pairs])
        return examine_tokens(judge, own, trained, thresholds, sets)
    return examine_texts(judge, [pair.row for pair in pairs], thresholds, sets)


def examine_tokens(
    judge: RewardModelJudge,
    pairs: Sequence[TokenPair],
    trained: Any,
    thresholds: Thresholds,
    sets: Mapping[str, PanelSet] | None = None,
) -> Panel:
    """Score the held-out pairs and measure the invariances on up to `PROBED` of their sides.

    `trained` is the model that the trainer leaves; the judge, read back from its folder,
    must score as it does.
    """
    chosen = judge.score_ids([pair.chosen for pair in pairs])
    rejected = judge.score_ids([pair.rejected for pair in pairs])
    scored = [
        scored_pair(pair.row, high, low, len(pair.chosen), len(pair.rejected))
        for pair, high, low in zip(pairs, chosen, rejected, strict=True)
    ]
    results = {name: one.examine(judge) for name, one in (sets or {}).items()}
    return judge_the_judge(scored, invariance(judge, pairs, trained), thresholds, sets=results)


def examine_texts(
    judge: AnyJudge,
    rows: Sequence[Preference],
    thresholds: Thresholds,
    sets: Mapping[str, PanelSet] | None = None,
) -> Panel:
    """The panel of a judge that is known by its answers alone, pointwise or pairwise.

    A pairwise judge sees each pair in both orders: where they agree the margin is their mean,
    else the worse of the two. Padding cannot be probed; the company of a row can.
    """
    prompts = [row.prompt for row in rows]
    chosen, rejected = [row.chosen for row in rows], [row.rejected for row in rows]
    swap = None
    if isinstance(judge, PairwiseJudge):
        compare = judge.compare
        shown = compare(prompts, chosen, rejected)
        swapped = compare(prompts, rejected, chosen)
        swap = order_swap(shown, swapped)
        highs = [
            (a - b) / 2 if (a > 0) == (b < 0) else min(a, -b)
            for a, b in zip(shown, swapped, strict=True)
        ]
        lows = [0.0] * len(rows)
        company = text_order(lambda at: compare(*picked(at, prompts, chosen, rejected)), shown)
    else:
        score = judge.score
        highs, lows = score(prompts, chosen), score(prompts, rejected)
        company = text_order(lambda at: score(*picked(at, prompts, chosen)), highs)
    sides = zip(rows, highs, lows, strict=True)
    scored = [scored_pair(r, high, low, len(r.chosen), len(r.rejected)) for r, high, low in sides]
    steady = Invariance(
        padding_left=None, padding_right=None, order=company, trainer=None, bos=None
    )
    results = {name: one.examine(judge) for name, one in (sets or {}).items()}
    return judge_the_judge(scored, steady, thresholds, swap=swap, sets=results)


def scored_pair(
    row: Preference, high: float, low: float, chosen_length: int, rejected_length: int
) -> ScoredPair:
    """A held-out pair with what the panel slices it by."""
    return ScoredPair(
        source=row.source,
        chosen=high,
        rejected=low,
        chosen_length=chosen_length,
        rejected_length=rejected_length,
        chosen_markup=markup(row.chosen),
        rejected_markup=markup(row.rejected),
    )


def markup(response: str) -> int:
    """Markdown marks in a response: headings, list items, emphasis, code fences, table rows."""
    return len(MARKUP.findall(response))


def picked(at: Sequence[int], *columns: Sequence[str]) -> list[list[str]]:
    """Some rows of each column, in that order."""
    return [[column[i] for i in at] for column in columns]


def text_order(answers: Callable[[Sequence[int]], list[float]], given: Sequence[float]) -> float:
    """The largest change of an answer when the rows come backwards, every other one at a time."""
    again = list(given)
    for start in (0, 1):
        at = list(range(start, len(given), 2))[::-1]
        for index, answer in zip(at, answers(at) if at else [], strict=True):
            again[index] = answer
    return furthest(given, again)


def order_swap(shown: Sequence[float], swapped: Sequence[float]) -> OrderSwap:
    """Winners of the same pairs in both orders; no answer in one of them is a flip."""
    rows = list(zip(shown, swapped, strict=True))
    return OrderSwap(
        flips=fmean(not ((a > 0 > b) or (a < 0 < b) or (a == 0 == b)) for a, b in rows),
        first_wins=fmean((1 + (x > 0) - (x < 0)) / 2 for row in rows for x in row),
    )


def invariance(judge: RewardModelJudge, pairs: Sequence[TokenPair], trained: Any) -> Invariance:
    """The largest change of a score by padding, by company, by saving, and by a BOS token."""
    rows = [side for pair in pairs for side in (pair.chosen, pair.rejected)][:PROBED]
    alone = [judge.score_ids([row])[0] for row in rows]
    # One batch of all lengths, so that the short rows are padded the most.
    everything = {"batch": len(rows), "tokens": sum(map(len, rows)) * len(rows)}
    wide = judge.with_model(judge.model, **everything)
    company = [0.0] * len(rows)
    company[::2] = judge.score_ids(rows[::2])
    company[1::2] = judge.score_ids(rows[1::2][::-1])[::-1]
    before_saving = judge.with_model(trained, **everything).score_ids(rows)
    return Invariance(
        padding_left=furthest(alone, wide.score_ids(rows, side="left")),
        padding_right=furthest(alone, wide.score_ids(rows, side="right")),
        order=furthest(judge.score_ids(rows), company),
        trainer=furthest(before_saving, wide.score_ids(rows)),
        bos=bos_change(judge, pairs),
    )


def furthest(scores: Sequence[float], others: Sequence[float]) -> float:
    """The largest gap between two scores of a row; NaN if one of a row's is, and the other not."""
    ours, theirs = torch.tensor(scores), torch.tensor(others)
    both = ours.isnan() & theirs.isnan()
    return float((ours - theirs).masked_fill(both, 0.0).abs().max())


def bos_change(judge: RewardModelJudge, pairs: Sequence[TokenPair]) -> Bos | None:
    """How scores and winners change when a BOS token opens each conversation; None without one."""
    bos = judge.tokenizer.bos_token_id
    if bos is None:
        return None
    probed = pairs[: PROBED // 2]
    plain, opened = [], []
    for side in ("chosen", "rejected"):
        bare = [getattr(pair, side)[getattr(pair, side)[0] == bos :] for pair in probed]
        plain.append(judge.score_ids(bare))
        opened.append(judge.score_ids([[bos, *row] for row in bare]))
    gaps = [
        [chosen > rejected for chosen, rejected in zip(*scores, strict=True)]
        for scores in (plain, opened)
    ]
    flips = sum(a != b for a, b in zip(*gaps, strict=True)) / len(probed)
    return Bos(delta=max(map(furthest, plain, opened)), flips=flips)
