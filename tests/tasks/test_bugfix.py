"""Patches by hand, and what the reward of SWE-RL makes of them."""

import random
from itertools import count

import pytest

from posttrain.records import Prompt
from posttrain.rewards.patch_similarity import patch_similarity
from posttrain.rl.rollout import Rollout
from posttrain.tasks import BANDS, TASKS, generate_many
from posttrain.tasks.bugfix import BUGS
from posttrain.tasks.mistakes import Step, parse

BUGFIX = TASKS["bugfix"]
RIGHT = """--- a/steps
+++ b/steps
@@ -2 +2 @@
-42 * 2 = 94
+42 * 2 = 84"""


@pytest.mark.parametrize("band", BANDS)
def test_the_patch_is_of_the_one_line_that_is_not_the_storys(band: int) -> None:
    arithmetic = TASKS["arithmetic"]
    for seed in range(100):
        problem = BUGFIX.generate(random.Random(seed), band)
        story, _, shown = problem.text.partition("\nFix the bug:\n")
        told = arithmetic.generate(random.Random(seed), band)
        right, wrong = parse(told.solution), parse(shown)
        (at,) = [i for i, pair in enumerate(zip(right, wrong, strict=True)) if len({*pair}) == 2]
        assert story == told.text
        assert parse(problem.answer) == [wrong[at], right[at]]
        assert f"@@ -{at + 1} +{at + 1} @@" in problem.answer
        assert sum(a != b for a, b in zip(wrong[at], right[at], strict=True)) == 1


@pytest.mark.parametrize(
    ("kind", "bug"),
    [
        ("slip", Step(12, "+", 30, 43)),
        ("wrong_number", Step(12, "+", 31, 42)),
        ("wrong_sign", Step(12, "*", 30, 42)),
    ],
)
def test_each_bug_by_hand(kind: str, bug: Step) -> None:
    right = Step(12, "+", 30, 42)
    assert any(BUGS[kind](random.Random(seed), right) == bug for seed in range(200))


def test_only_the_patch_itself_is_right() -> None:
    assert BUGFIX.verify("", RIGHT, f"{RIGHT}\n ")
    assert not BUGFIX.verify("", RIGHT, RIGHT.replace("84", "85"))
    assert not BUGFIX.verify("", RIGHT, f"Here it is:\n{RIGHT}")


def test_the_nearer_a_patch_the_more_it_is_worth() -> None:
    """All but one of the L characters of the hunk in common: 2 (L - 1) / 2 L."""
    prompt = Prompt(id="p", text="", answer=RIGHT, task="bugfix", source="test")
    written = [RIGHT, RIGHT.replace("84", "85"), RIGHT.replace("42 * 2", "1 + 9"), "#### 84"]
    rewards = patch_similarity([Rollout(prompt, text, (), (), False) for text in written], None)
    length = len(RIGHT.split("\n", 2)[2])
    assert rewards[:2] == [1.0, pytest.approx((length - 1) / length)]
    assert 0 < rewards[2] < rewards[1]
    assert rewards[3] == -1.0


def test_the_reward_goes_with_the_verdict() -> None:
    """Of any problem, the right patch is worth more than any mistaken one."""
    for seed, problem in zip(count(), generate_many(BUGFIX, 50, {1: 1.0, 3: 1.0}, "train", 0)):
        prompt = Prompt(id="p", text=problem.text, answer=problem.answer, task="b", source="test")
        wrong, _ = BUGFIX.corrupt(random.Random(seed), problem)
        right_reward, wrong_reward = patch_similarity(
            [Rollout(prompt, text, (), (), False) for text in (problem.solution, wrong)], None
        )
        assert right_reward == 1.0 > wrong_reward
