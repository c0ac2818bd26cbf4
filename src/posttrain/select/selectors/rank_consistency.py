"""Ranking prompts on which a teacher agrees with itself (ReasonRank, arXiv:2508.07050)."""

import math
import random
import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Annotated

from pydantic import Field

from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of
from posttrain.tasks import final_answer

DEPTH = 10


def rank_consistency(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    at_least: Annotated[float, Field(ge=0, le=1)] = 0.4,
) -> Iterable[Record]:
    """Prompts whose mean NDCG@10 of the policy's lists against its pointwise labels is enough.

    The policy is the teacher: the final answer of each rollout is its list of ids, best first; the
    prompt's `answer` lists the ids that it found relevant one by one. NDCG@10 = DCG / ideal DCG
    with DCG = sum_i rel_i / log2(i + 1); a repeated id counts once. The paper keeps from 0.4 on.
    """
    prompts = all_of(rows, Prompt)
    lists = [[ids_of(final_answer(s.response) or "") for s in g] for g in measures.groups(prompts)]
    found = [
        fmean(ndcg(each, set(ids_of(row.answer))) for each in group)
        for row, group in zip(prompts, lists, strict=True)
    ]
    measures.note("ndcg", prompts, found)
    return [row for row, value in zip(prompts, found, strict=True) if value >= at_least]


def ids_of(text: str) -> list[str]:
    """The distinct ids of a list such as `2, 1, 3` or `[2] > [1] > [3]`, in order."""
    return list(dict.fromkeys(re.findall(r"\w+", text)))


def ndcg(ranking: Sequence[str], relevant: set[str]) -> float:
    """NDCG@10 of a ranking with relevance 0 or 1; 0 where nothing is relevant."""
    gain = sum(1 / math.log2(i + 2) for i, each in enumerate(ranking[:DEPTH]) if each in relevant)
    ideal = sum(1 / math.log2(i + 2) for i in range(min(DEPTH, len(relevant))))
    return gain / ideal if ideal else 0.0
