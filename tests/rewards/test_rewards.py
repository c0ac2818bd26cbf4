"""Rewards give one float per rollout, and their parts add up by weight."""

from collections.abc import Sequence

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rewards import REWARDS, check_parts
from posttrain.rewards.scoring import score
from posttrain.rl.rollout import Rollout


class LengthJudge:
    """A judge that likes long responses."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [float(len(response)) for response in responses]


def rollout(text: str, length: int = 3, *, truncated: bool = False) -> Rollout:
    prompt = Prompt(id="p", text="2 + 3?", answer="5", task="arithmetic", source="test")
    return Rollout(prompt, text, (1,) * length, (-0.1,) * length, truncated)


@pytest.mark.parametrize("name", REWARDS)
def test_one_finite_float_each_also_for_empty_responses(name: str) -> None:
    rollouts = [rollout("#### 5"), rollout("", 0), rollout("5", truncated=True)]
    found = REWARDS[name](rollouts, LengthJudge())
    assert [type(value) for value in found] == [float] * 3
    assert all(abs(value) < 10 for value in found)
    assert REWARDS[name]([], LengthJudge()) == []


def test_verifier_pays_for_the_right_answer() -> None:
    assert REWARDS["verifier"]([rollout("#### 5"), rollout("#### 6")], None) == [1.0, 0.0]
    signed = build(REWARDS, Plugin(name="verifier", options={"wrong": -1.0}))
    assert signed([rollout("#### 6")], None) == [-1.0]


def test_format_wants_one_answer_on_the_last_line_of_a_finished_response() -> None:
    texts = ["2 + 3 = 5\n#### 5", "#### 5\nso", "#### 4\n#### 5", "#### ", "5"]
    assert REWARDS["format"]([rollout(t) for t in texts], None) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert REWARDS["format"]([rollout("#### 5", truncated=True)], None) == [0.0]


def test_judge_scores_are_squashed_or_raw() -> None:
    squashed = REWARDS["judge"]([rollout(""), rollout("ab")], LengthJudge())
    assert squashed == pytest.approx([0.5, 0.880797])
    raw = build(REWARDS, Plugin(name="judge", options={"scale": "raw"}))
    assert raw([rollout("ab")], LengthJudge()) == [2.0]


@pytest.mark.parametrize(
    ("length", "buffer", "expected"),
    [(80, 20, 0.0), (81, 20, -0.05), (90, 20, -0.5), (100, 20, -1.0), (250, 20, -1.0),
     (100, 0, 0.0), (101, 0, -1.0)],
)  # fmt: skip
def test_overlong_by_hand(length: int, buffer: int, expected: float) -> None:
    """L_max 100: free up to L_max - buffer, linear in the buffer, never below -1."""
    part = build(REWARDS, Plugin(name="overlong", options={"max_length": 100, "buffer": buffer}))
    assert part([rollout("", length)], None) == pytest.approx([expected])


def test_parts_add_up_by_weight() -> None:
    groups = [(rollout("#### 5"), rollout("x")), (rollout("5"),)]
    parts = {"verifier": REWARDS["verifier"], "format": REWARDS["format"]}
    scored = score(groups, parts, {"format": 0.25}, None)
    assert [[r.reward for r in group] for group in scored] == [[1.25, 0.0], [0.0]]
    assert scored[0][0].reward_parts == {"verifier": 1.0, "format": 1.0}


def test_all_faults_of_the_parts_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_parts(["judge", "verifier", "judge"], {"verifer": 1.0}, has_judge=False, where="rl")
    assert len(caught.value.faults) == 3
    assert "did you mean `verifier`" in str(caught.value)
