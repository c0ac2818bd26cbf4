"""Multiple choice by likelihood: option texts, options under letters, true and false answers.

Nothing is drawn. Likelihoods that are no numbers make an item wrong and `unscored`, never a crash.
"""

import math
from collections.abc import Sequence
from itertools import combinations

from posttrain.benchmark.metrics import LETTERS
from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Sample


def multiple_choice(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """Choose the option that is likeliest for its length; nothing is drawn.

    The options are not shown in the prompt. An option's score is the sum of the log-probs of its
    tokens as the assistant's whole turn (end-of-turn included), divided by its length in
    characters (`acc_norm` of lm-evaluation-harness); of equal scores the first option wins. Items
    with orders show their options under letters instead, once for each order.
    """
    if any(item.orders for item in items):
        return lettered(engine, suite, items)
    found = []
    for item, logps in zip(items, option_logps(engine, items), strict=True):
        sums = [math.fsum(tokens) for tokens in logps]
        scores = [total / max(1, len(text)) for total, text in zip(sums, item.options, strict=True)]
        best = likeliest(scores)
        row = chosen_row(suite, item, item.options, best, sums)
        found.append(row.model_copy(update={"tokens": len(logps[best or 0])}))
    return found


def option_logps(engine: Engine, items: Sequence[Item]) -> list[list[list[float]]]:
    """Log-probs of each option's tokens, by item and option."""
    pairs = [(item.prompt.text, option) for item in items for option in item.options]
    logps = iter(engine.logps([p for p, _ in pairs], [option for _, option in pairs]))
    return [[next(logps) for _ in item.options] for item in items]


def likeliest(scores: Sequence[float]) -> int | None:
    """The place of the largest score, the first of equal ones; None when one is no number."""
    if not scores or not all(map(math.isfinite, scores)):
        return None
    return max(range(len(scores)), key=scores.__getitem__)


def chosen_row(
    suite: str, item: Item, options: Sequence[str], best: int | None, sums: Sequence[float]
) -> Sample:
    """The row of an item whose option `best` was chosen; none of them when the scores are bad."""
    response = "" if best is None else options[best]
    return Sample(
        suite=suite,
        item_id=item.prompt.id,
        index=0,
        prompt=item.prompt.text,
        answer=item.prompt.answer,
        response=response,
        correct=float(best is not None and response == item.prompt.answer),
        tokens=1,
        truncated=False,
        difficulty=item.prompt.difficulty,
        prediction=None if best is None else LETTERS[best],
        logp=None if best is None else round(sums[best], 4),
        measures={"unscored": 1.0} if best is None else None,
    )


def lettered(engine: Engine, suite: str, items: Sequence[Item]) -> list[Sample]:
    """One row for each item and order: the option whose letter is likeliest as the whole answer.

    Measures: `position_X`, the share of choices on letter X; `consistency`, the share of pairs of
    orders that choose the same option; `entropy` in nats of the chances over letters, which nears
    that of a guess in a policy that only lost its bias; `debiased`, whether the option with
    the highest chance on average over orders is right.
    """
    shown = [(item, order) for item in items for order in item.orders]
    asked = [
        item._replace(
            prompt=item.prompt.model_copy(update={"text": listed(item, order)}),
            options=tuple(LETTERS[: len(order)]),
        )
        for item, order in shown
    ]
    logps = iter(option_logps(engine, asked))
    rows = []
    for item in items:
        sums = [[math.fsum(tokens) for tokens in next(logps)] for _ in item.orders]
        rows += _orders_rows(suite, item, sums)
    return rows


def listed(item: Item, order: Sequence[int]) -> str:
    """The question with its options under letters, in an order."""
    lines = [f"{LETTERS[at]}. {item.options[option]}" for at, option in enumerate(order)]
    return "\n".join([item.prompt.text, *lines, "Answer with the letter alone."])


def _orders_rows(suite: str, item: Item, sums: Sequence[Sequence[float]]) -> list[Sample]:
    """The rows of one item: `sums[order][letter]` are log-probs of letters."""
    best = [likeliest(each) for each in sums]
    picked = [
        None if at is None else item.options[order[at]]
        for at, order in zip(best, item.orders, strict=True)
    ]
    scored = [option for option in picked if option is not None]
    pairs = [float(a == b) for a, b in combinations(scored, 2)]
    totals: dict[str, float] = {}
    for order, each in zip(item.orders, sums, strict=True):
        for at, chance in zip(order, chances(each), strict=True):
            totals[item.options[at]] = totals.get(item.options[at], 0.0) + chance
    winner = max(totals, key=totals.__getitem__)
    whole = {
        "consistency": sum(pairs) / len(pairs) if pairs else 1.0,
        "debiased": float(bool(scored) and winner == item.prompt.answer),
    }
    rows = []
    for index, (place, order, each) in enumerate(zip(best, item.orders, sums, strict=True)):
        options = [item.options[option] for option in order]
        row = chosen_row(suite, item, options, place, each)
        own = {"unscored": 1.0} if place is None else {f"position_{LETTERS[place]}": 1.0}
        entropy = -math.fsum(p * math.log(p) for p in chances(each) if p > 0)
        measures = whole | own | {"entropy": entropy}
        text = listed(item, order)
        rows.append(row.model_copy(update={"index": index, "prompt": text, "measures": measures}))
    return rows


def chances(sums: Sequence[float]) -> list[float]:
    """Softmax of log-probs; all alike when they are no numbers."""
    if not all(map(math.isfinite, sums)):
        return [1 / len(sums)] * len(sums)
    largest = max(sums)
    weights = [math.exp(each - largest) for each in sums]
    return [each / math.fsum(weights) for each in weights]


def truthful_choice(
    engine: Engine, suite: str, items: Sequence[Item], sampling: Sampling
) -> list[Sample]:
    """MC1 and MC2 of TruthfulQA (arXiv:2109.07958), by the sum of an answer's log-probs.

    MC1, which is `correct`: the best answer, the first option, is likelier than every false one.
    MC2: the true answers' share of the likelihood of all.
    """
    found = []
    for item, logps in zip(items, option_logps(engine, items), strict=True):
        sums = [math.fsum(tokens) for tokens in logps]
        rivals = [0, *(at for at, right in enumerate(item.labels) if not right)]
        at = likeliest([sums[rival] for rival in rivals])
        best = None if at is None or likeliest(sums) is None else rivals[at]
        row = chosen_row(suite, item, item.options, best, sums)
        if best is not None:
            true = math.fsum(
                p for p, right in zip(chances(sums), item.labels, strict=True) if right
            )
            update = {"measures": {"mc2": min(1.0, true)}, "tokens": len(logps[best])}
            row = row.model_copy(update=update)
        found.append(row)
    return found
