"""Examining a finished judge: scores of held-out pairs, and what must not change a score."""

from collections.abc import Sequence
from typing import Any

import torch

from posttrain.reward_model.judge import Judge, TokenPair
from posttrain.reward_model.panel import (
    Bos,
    Invariance,
    Panel,
    ScoredPair,
    Thresholds,
    judge_the_judge,
)

PROBED = 128


def examine(
    judge: Judge, pairs: Sequence[TokenPair], trained: Any, thresholds: Thresholds
) -> Panel:
    """Score the held-out pairs and measure the invariances on up to `PROBED` of their sides.

    `trained` is the model that the trainer leaves; the judge, read back from its folder,
    must score as it does.
    """
    chosen = judge.score_ids([pair.chosen for pair in pairs])
    rejected = judge.score_ids([pair.rejected for pair in pairs])
    scored = [
        ScoredPair(
            source=pair.row.source,
            chosen=high,
            rejected=low,
            chosen_length=len(pair.chosen),
            rejected_length=len(pair.rejected),
        )
        for pair, high, low in zip(pairs, chosen, rejected, strict=True)
    ]
    return judge_the_judge(scored, invariance(judge, pairs, trained), thresholds)


def invariance(judge: Judge, pairs: Sequence[TokenPair], trained: Any) -> Invariance:
    """The largest change of a score by padding, by company, by saving, and by a BOS token."""
    rows = [side for pair in pairs for side in (pair.chosen, pair.rejected)][:PROBED]
    alone = [judge.score_ids([row])[0] for row in rows]
    # One batch of all lengths, so that the short rows are padded the most.
    wide = Judge(judge.model, judge.tokenizer, batch=len(rows))
    company = [0.0] * len(rows)
    company[::2] = judge.score_ids(rows[::2])
    company[1::2] = judge.score_ids(rows[1::2][::-1])[::-1]
    before_saving = Judge(trained, judge.tokenizer, batch=len(rows)).score_ids(rows)
    return Invariance(
        padding_left=furthest(alone, wide.score_ids(rows, side="left")),
        padding_right=furthest(alone, wide.score_ids(rows, side="right")),
        order=furthest(judge.score_ids(rows), company),
        trainer=furthest(before_saving, wide.score_ids(rows)),
        bos=bos_change(judge, pairs),
    )


def furthest(scores: Sequence[float], others: Sequence[float]) -> float:
    """The largest gap between two scores of a row; NaN if any score is."""
    return float((torch.tensor(scores) - torch.tensor(others)).abs().max())


def bos_change(judge: Judge, pairs: Sequence[TokenPair]) -> Bos | None:
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
