"""Every task: solutions are right, mistakes are wrong, garbage is wrong and never raises."""

import random
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.tasks import BANDS, TASKS, Task, generate_many, split_of

EVEN = dict.fromkeys(BANDS, 1.0)
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
# The answer of the others is a patch, all of it.
MARKED = {name: task for name, task in TASKS.items() if name != "bugfix"}
every_marked_task = pytest.mark.parametrize("task", MARKED.values(), ids=MARKED)

GARBAGE = [
    "",
    "####",
    "#### ",
    "#### #### ####",
    "#### " + "9" * 100_000,
    "#### 9**9**9",
    "#### " + "(" * 50_000 + "1" + ")" * 50_000,
    "#### " + "-" * 50 + "1",
    "#### 1/0",
    "#### (1 + 2",
    "#### \u0665\u0667 \uff15\uff17 \u00b2",
    "#### __import__('os').system('true')",
    "#### 3(5)",
    "#### 007",
    "#### nan",
    "\x00#### \x00",
    "#### \ud800",
]


@every_task
@pytest.mark.parametrize("difficulty", BANDS)
def test_solutions_are_right_and_mistakes_are_wrong(task: Task, difficulty: int) -> None:
    for seed in range(500):
        rng = random.Random(seed)
        problem = task.generate(rng, difficulty)
        assert problem.difficulty == difficulty
        assert task.name not in MARKED or problem.solution.split("\n")[-1].startswith("#### ")
        assert task.verify(problem.text, problem.answer, problem.solution), problem
        wrong, kind = task.corrupt(rng, problem)
        assert kind
        assert not task.verify(problem.text, problem.answer, wrong), (problem, wrong)


@every_task
def test_an_unknown_band_is_refused(task: Task) -> None:
    with pytest.raises(ValueError, match="bands"):
        task.generate(random.Random(0), 5)


@every_task
@pytest.mark.parametrize("response", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_wrong(task: Task, response: str) -> None:
    problem = task.generate(random.Random(0), 2)
    assert not task.verify(problem.text, problem.answer, response)


@every_task
@given(response=st.text())
@example(response="1 + 1")
def test_text_never_raises(task: Task, response: str) -> None:
    problem = task.generate(random.Random(0), 2)
    assert not task.verify(problem.text, problem.answer, response)
    task.verify(problem.text, problem.answer, f"#### {response}")


@given(response=st.text(alphabet="0123456789+-*/() ", max_size=80))
def test_any_arithmetic_text_is_evaluated_without_raising(response: str) -> None:
    assert TASKS["countdown"].verify("", "16 from 2, 3, 5", f"#### {response}") in (True, False)


@every_marked_task
def test_what_follows_the_last_mark_counts(task: Task) -> None:
    problem = task.generate(random.Random(1), 2)
    assert task.verify(problem.text, problem.answer, f"#### wrong\n{problem.solution}\n ")
    assert not task.verify(problem.text, problem.answer, f"{problem.solution}\n#### wrong")
    assert not task.verify(problem.text, problem.answer, f"{problem.solution} or so")


@every_task
def test_the_splits_share_no_problem(task: Task) -> None:
    train = generate_many(task, 300, EVEN, "train", seed=0)
    evaluation = generate_many(task, 300, EVEN, "eval", seed=0)
    texts = {problem.text for problem in train}
    assert len(texts) == 300
    assert texts.isdisjoint(problem.text for problem in evaluation)
    assert {split_of(problem.text.upper().replace(" ", "\n ")) for problem in train} == {"train"}
    assert {split_of(problem.text) for problem in evaluation} == {"eval"}


def test_one_problem_in_eight_is_for_evaluation() -> None:
    share = sum(split_of(str(number)) == "eval" for number in range(8000)) / 8000
    assert share == pytest.approx(1 / 8, abs=0.01)


def test_bands_follow_their_weights() -> None:
    problems = generate_many(TASKS["arithmetic"], 1000, {1: 3.0, 4: 1.0}, "train", seed=0)
    assert sum(problem.difficulty == 1 for problem in problems) == pytest.approx(750, abs=50)


def test_asking_for_more_problems_than_there_are_says_so() -> None:
    tiny = Task("tiny", lambda rng, band: PROBLEM, lambda *_: True, lambda *_: ("", "slip"))
    with pytest.raises(ValueError, match="tiny: only"):
        generate_many(tiny, 3, {1: 1.0}, "train", seed=0)


PROBLEM = TASKS["arithmetic"].generate(random.Random(0), 1)

DIGEST = """
import hashlib, random
from posttrain.tasks import BANDS, TASKS, generate_many
drawn = [
    (problem, TASKS[name].corrupt(random.Random(7), problem))
    for name in ("arithmetic", "countdown", "knights_knaves")
    for problem in generate_many(TASKS[name], 100, dict.fromkeys(BANDS, 1.0), "train", seed=3)
]
print(hashlib.sha256(repr(drawn).encode()).hexdigest()[:16])
"""


def test_problems_are_the_same_in_every_process() -> None:
    """A new digest means that the committed base model has seen other texts: pretrain again."""
    ran = subprocess.run(
        [sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "b30844bc7e5af053"
