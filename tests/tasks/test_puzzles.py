"""Knights and knaves, and countdown, by hand."""

import random

import pytest

from posttrain.tasks import TASKS

PUZZLE = "16 from 2, 3, 5"


@pytest.mark.parametrize(
    "expression", ["(3 + 5) * 2", "2*(5+3)", "((5) + 3) * 2", "3 * 5 + 2 / 2", "16"]
)
def test_countdown_takes_any_expression_of_the_given_numbers(expression: str) -> None:
    right = expression in ("(3 + 5) * 2", "2*(5+3)", "((5) + 3) * 2")
    assert TASKS["countdown"].verify("", PUZZLE, f"#### {expression}") is right


def test_countdown_divides_exactly() -> None:
    assert TASKS["countdown"].verify("", "8 from 3, 3, 8", "#### 8 / 3 * 3")
    assert not TASKS["countdown"].verify("", "2 from 7, 3", "#### 7 / 3")


def test_who_is_what_in_any_order() -> None:
    verify = TASKS["knights_knaves"].verify
    answer = "Ann knight, Bob knave"
    assert verify("", answer, "#### Bob knave, Ann knight")
    assert not verify("", answer, "#### Ann knight")
    assert not verify("", answer, "#### Ann knight, Bob knave, Bob knave")


def test_the_search_ends_at_the_only_case_that_fits() -> None:
    for seed in range(100):
        problem = TASKS["knights_knaves"].generate(random.Random(seed), 4)
        *search, answer = problem.solution.split("\n")
        assert [line.endswith("yes") for line in search] == [False] * (len(search) - 1) + [True]
        kinds = search[-1].split(":")[0].split()
        assert [part.split()[1] for part in answer.removeprefix("#### ").split(", ")] == kinds
