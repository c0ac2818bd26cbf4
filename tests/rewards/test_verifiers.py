"""Verifiers accept what is right however it is written, and never raise."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.errors import DataError
from posttrain.rewards.verifiers import VERIFIERS, prediction, verify
from posttrain.tasks import TASKS


@pytest.mark.parametrize(
    ("task", "answer", "response", "right", "predicted"),
    [
        ("number", "72", "so 72\n#### 72", True, "72"),
        ("number", "#### 72", "#### $72.00", True, "72"),
        ("number", "1234.5", "#### 1,234.50.", True, "2469/2"),
        ("number", "0.5", "#### 1/2", True, "1/2"),
        ("number", "-3", "#### 3", False, "3"),
        ("number", "3", "#### 4\n#### 3", True, "3"),
        ("number", "3", "3", False, None),
        ("number", "3", "#### 3 apples", False, None),
        ("number", "0", "#### 1/0", False, None),
        ("gsm8k", "5 * 2 = 10\n#### 10", "#### 10", True, "10"),
        ("choice", "B", "#### (B)", True, "B"),
        ("choice", "(B)", "B. because", True, "B"),
        ("choice", "A", "Apples", False, None),
        ("text", "Paris", "#### paris ", True, "paris"),
        ("math", r"\frac{1}{2}", r"hence \boxed{0.5}", True, "1/2"),
        ("math", r"\frac{1}{2}", r"\boxed{\frac{1}{3}}", False, "1/3"),
        ("math", "2x+1", "#### 1+2x", True, "2*x + 1"),
        ("math", "[0,1)", "#### (0,1)", False, "Interval.open(0, 1)"),
        ("math", "9", "no answer here", False, None),
        ("math", "9", "#### 9^{9^{9^9}}", False, None),
        ("math", "9", "#### 9**99999999999", False, None),
        ("knights_knaves", "Ann knight, Ben knave", "#### Ben knave, Ann knight", True,
         "Ann knight, Ben knave"),
        ("countdown", "10 from 2, 5", "#### 2 * 5", True, "2*5"),
    ],
)  # fmt: skip
def test_examples(
    task: str, answer: str, response: str, right: bool, predicted: str | None
) -> None:
    assert verify(task, "", answer, response) is right
    assert prediction(task, response) == predicted


@pytest.mark.parametrize("task", TASKS)
def test_a_worked_solution_is_right_and_a_corrupted_one_is_wrong(task: str) -> None:
    rng = random.Random(0)
    for _ in range(20):
        problem = TASKS[task].generate(rng, 1 + rng.randrange(4))
        assert verify(task, problem.text, problem.answer, problem.solution)
        wrong, _ = TASKS[task].corrupt(rng, problem)
        assert not verify(task, problem.text, problem.answer, wrong)


@pytest.mark.parametrize("task", VERIFIERS)
@given(garbage=st.text(max_size=60), marked=st.booleans())
@settings(max_examples=25, deadline=None)
def test_garbage_never_raises(task: str, garbage: str, marked: bool) -> None:
    response = f"#### {garbage}" if marked else garbage
    answer = "10 from 2, 5" if task == "countdown" else "10"
    assert verify(task, "what?", answer, response) in (True, False)
    assert prediction(task, response) is None or prediction(task, response)


@pytest.mark.parametrize("task", VERIFIERS)
@pytest.mark.parametrize(
    "response", ["", "####", "#### ", "\\boxed{", "#### " + "9" * 5000, "\x00"]
)
def test_odd_responses_are_wrong_and_predict_nothing_or_little(task: str, response: str) -> None:
    answer = "10 from 2, 5" if task == "countdown" else "10"
    assert verify(task, "what?", answer, response) is False


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean `arithmetic`"):
        verify("arithmetics", "", "1", "1")
