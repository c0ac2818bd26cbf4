"""Word problems by hand: ranges, and what each mistake looks like."""

import random
import re

import pytest

from posttrain.tasks import BANDS, TASKS, generate_many
from posttrain.tasks.mistakes import MISTAKES, parse

ARITHMETIC = TASKS["arithmetic"]
STEPS = parse("12 + 7 = 19\n19 * 3 = 57\n#### 57")


@pytest.mark.parametrize("band", BANDS)
def test_a_solution_has_one_right_equation_per_step(band: int) -> None:
    for problem in generate_many(ARITHMETIC, 200, {band: 1.0}, "train", seed=5):
        steps = parse(problem.solution)
        assert len(steps) == band
        for each in steps:
            assert eval(f"{each.left} {each.op} {each.right}") == each.result
            assert 2 <= each.result <= 999
        assert len(re.findall(r"\S+", problem.text)) <= 60


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("slip", "12 + 7 = 18\n18 * 3 = 54\n#### 54"),
        ("distractor", "12 + 7 = 19\n19 * 9 = 171\n#### 171"),
        ("wrong_operation", "12 - 7 = 5\n5 * 3 = 15\n#### 15"),
        ("skipped_step", "12 * 3 = 36\n#### 36"),
        ("wrong_answer", "12 + 7 = 19\n19 * 3 = 57\n#### 12"),
        ("missing_answer", "12 + 7 = 19\n19 * 3 = 57"),
    ],
)
def test_each_mistake_by_hand(kind: str, wrong: str) -> None:
    drawn = {MISTAKES[kind](random.Random(seed), STEPS, [9]) for seed in range(100)}
    assert wrong in drawn


def test_the_verifier_compares_characters() -> None:
    for response in ("#### 57.", "#### +57", "#### 057", "#### 5 7", "57", "### 57"):
        assert not ARITHMETIC.verify("", "57", response)
    assert ARITHMETIC.verify("", "57", "#### 5 ... ####57 ")
