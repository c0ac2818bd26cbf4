"""Selectors against enumeration, hand-worked numbers, and laws that every one of them keeps."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from posttrain.best_of_n.selectors import SELECTORS, Candidates, Selector, chosen
from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.statistics import generator, pair_accuracy, weighted_majority_at_k

NAN = float("nan")


def candidates(
    correct: Sequence[Sequence[float]],
    said: Sequence[Sequence[str | None]],
    judge: Sequence[Sequence[float]],
    logp: Sequence[Sequence[float]] | None = None,
    tokens: Sequence[Sequence[float]] | None = None,
) -> Candidates:
    shape = np.shape(correct)
    return Candidates(
        np.array(correct, dtype=float),
        said,
        np.array(judge, dtype=float),
        np.array(judge if logp is None else logp, dtype=float),
        np.full(shape, 4.0) if tokens is None else np.array(tokens, dtype=float),
    )


def many(items: int = 12, n: int = 7) -> Candidates:
    """Items with ties, missing predictions, missing scores and, in two of them, nothing at all."""
    rng = np.random.default_rng(3)
    said = [[rng.choice(["a", "b", "c", None]) for _ in range(n)] for _ in range(items)]
    judge = rng.integers(-3, 4, (items, n)).astype(float)
    judge[rng.random((items, n)) < 0.2] = NAN
    said[0], judge[1] = [None] * n, NAN
    right = [[float(text == "a") for text in row] for row in said]
    return candidates(right, said, judge)


def by_enumeration(
    right: Sequence[float],
    said: Sequence[str | None],
    score: Sequence[float],
    k: int,
    weights: Literal["softmax", "sum"],
) -> float:
    """The mean over all subsets, each counted out with exact sums."""
    values = []
    for subset in itertools.combinations(range(len(said)), k):
        voters = [j for j in subset if said[j] is not None and not math.isnan(score[j])]
        votes: dict[str | None, list[float]] = defaultdict(list)
        for j in voters:
            votes[said[j]].append(math.exp(score[j]) if weights == "softmax" else score[j])
        if not voters:
            values.append(0.0)
            continue
        most = max(math.fsum(v) for v in votes.values())
        values.append(
            next(right[j] for j in voters if math.isclose(math.fsum(votes[said[j]]), most))
        )
    return float(np.mean(values))


@pytest.mark.parametrize("weights", ["softmax", "sum"])
def test_weighted_majority_equals_enumeration(weights: Literal["softmax", "sum"]) -> None:
    found, ks = many(), [1, 2, 3, 5, 7]
    expected = [
        [by_enumeration(found.correct_IN[i], found.predictions[i], found.judge_IN[i], k, weights)
         for k in ks]
        for i in range(len(found.predictions))
    ]  # fmt: skip
    select = build(SELECTORS, Plugin(name="weighted_majority", options={"weights": weights}))
    np.testing.assert_allclose(select(found, ks, generator(0, "w")), expected, atol=1e-9)


def test_weighted_majority_by_hand() -> None:
    """Two votes for `a` of 1 and 1, one for `b` of 1.5. By sum `a` has 2, by softmax
    2e against e^1.5: 5.4 against 4.5; at temperature 0.5 2e^2 against e^3: 14.8 against 20.1."""
    found = candidates([[1, 1, 0]], [["a", "a", "b"]], [[1.0, 1.0, 1.5]])
    rng = generator(0, "w")
    for options, right in (
        ({"weights": "sum"}, 1.0),
        ({}, 1.0),
        ({"temperature": 0.5}, 0.0),
    ):
        select = build(SELECTORS, Plugin(name="weighted_majority", options=options))
        assert select(found, [3], rng) == right


def test_negative_sums_lose_against_fewer_votes() -> None:
    """`a` has -1 - 1 = -2, `b` -1.5: by sum `b` wins, and an answer nobody gave never does."""
    found = candidates([[0, 0, 1]], [["a", "a", "b"]], [[-1.0, -1.0, -1.5]])
    select = build(SELECTORS, Plugin(name="weighted_majority", options={"weights": "sum"}))
    assert select(found, [3], generator(0, "w")) == 1.0


def test_scores_far_apart_still_rank_what_is_left() -> None:
    """exp(-900) is 0 as a float; within a subset without the 0.0 the -900 still beats the -901."""
    found = candidates([[0, 1, 0]], [["x", "a", "b"]], [[0.0, -900.0, -901.0]])
    [[pairs]] = SELECTORS["weighted_majority"](found, [2], generator(0, "w"))
    assert pairs == pytest.approx(1 / 3)


def test_equal_sums_of_unequal_floats_tie() -> None:
    """0.6 against six times 0.1, whose sum of floats is more: a tie, for the first seen."""
    score = np.array([[0.6, *[0.1] * 6]])
    right = np.array([[1.0, *[0.0] * 6]])
    said = [["a", *["b"] * 6]]
    found = weighted_majority_at_k(right, said, score, [7], generator(0, "w"), weights="sum")
    assert found == 1.0


def test_a_pair_without_a_score_is_no_pair() -> None:
    """Of right 2, wrong 1 and wrong without a score one pair is known, and it is in order."""
    assert pair_accuracy(np.array([[1.0, 0, 0]]), np.array([[2.0, 1.0, NAN]])) == 1.0
    assert pair_accuracy(np.array([[1.0, 0, 0]]), np.array([[NAN, 1.0, 2.0]])) == 0.5


def test_a_sample_without_a_score_is_never_the_judges_choice() -> None:
    """Pairs of {right without score, wrong 1, wrong 2}: never right. Alone: wrong as well."""
    found = candidates([[1, 0, 0]], [["a", "b", "c"]], [[NAN, 1.0, 2.0]])
    np.testing.assert_array_equal(SELECTORS["judge"](found, [1, 2, 3], generator(0, "j")), 0.0)


def test_self_certainty_by_hand() -> None:
    """Means -1, -2, -0.5 over 4, 1, 20 tokens: the longest is likeliest by token, the second by
    response (-4, -2, -10); an empty sample has no mean."""
    found = candidates(
        [[0, 0, 1, 0]], [["a"] * 4], [[NAN] * 4],
        logp=[[-4.0, -2.0, -10.0, 0.0]], tokens=[[4, 1, 20, 0]],
    )  # fmt: skip
    rng = generator(0, "s")
    assert SELECTORS["self_certainty"](found, [4], rng) == 1.0
    select = build(SELECTORS, Plugin(name="self_certainty", options={"per": "response"}))
    assert select(found._replace(correct_IN=np.array([[0.0, 1, 0, 0]])), [3], rng) > 0.5


@pytest.mark.parametrize("name", SELECTORS)
def test_laws_of_a_selector(name: str) -> None:
    """A share; never above the oracle; all right is right; one sample is what it is."""
    select: Selector = SELECTORS[name]
    found, ks, rng = many(), [1, 2, 4, 7], generator(0, name)
    oracle = SELECTORS["verifier"](found, ks, rng)
    values = select(found, ks, rng)
    assert values.shape == (12, 4)
    assert ((values >= 0) & (values <= oracle + 1e-6)).all()
    whole = candidates([[1, 1, 1]], [["a", "a", "b"]], [[1.0, 2.0, 3.0]])
    np.testing.assert_allclose(select(whole, [1, 2, 3], rng), 1.0)
    single = candidates([[1], [0]], [["a"], ["b"]], [[0.0], [0.0]])
    np.testing.assert_array_equal(select(single, [1], rng), [[1.0], [0.0]])


@pytest.mark.parametrize("name", SELECTORS)
def test_one_of_all_samples_is_their_mean(name: str) -> None:
    found = candidates([[1, 0, 0, 1]], [["a", "b", "c", "a"]], [[1.0, 2.0, 3.0, 0.5]])
    assert SELECTORS[name](found, [1], generator(0, name)) == pytest.approx(0.5)


def test_a_selector_named_twice_or_with_a_wrong_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="`judge` named twice"):
        chosen([Plugin(name="judge"), Plugin(name="judge")])
    with pytest.raises(ConfigError, match="weights"):
        chosen([Plugin(name="weighted_majority", options={"weights": "log"})])
