"""Rewards give one float per rollout, and their parts add up by weight."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rewards import REWARDS, check_parts
from posttrain.rewards.patch_similarity import file_diffs, similarity
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


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0.0), (40, 2 / 3), (60, 1.0), (90, 1.0), (120, 1.0), (150, 0.5),
     (200, 0.0), (9999, 0.0)],
)  # fmt: skip
def test_clh_by_hand(length: int, expected: float) -> None:
    """L_ref 200: the band is 60 to 120, eps 60."""
    part = build(REWARDS, Plugin(name="clh", options={"reference_length": 200.0}))
    assert part([rollout("x", length)], None) == pytest.approx([expected])
    assert part([rollout("#### 5", length)], None) == pytest.approx([expected])
    gated = build(REWARDS, Plugin(name="clh", options={"gated": True}))
    both = gated([rollout("#### 6", length), rollout("#### 5", length)], None)
    assert both == pytest.approx([0.0, expected])


def test_clh_joins_the_other_parts_by_weight() -> None:
    """r = w_c C + w_h H + w_l r_len with 1, 1 and 0.5: right, badly formed, 150 tokens."""
    parts = {name: REWARDS[name] for name in ("verifier", "format", "clh")}
    ((scored,),) = score([(rollout("#### 5\n\n#### 5", 150),)], parts, {"clh": 0.5}, None)
    assert scored.reward == pytest.approx(1 + 0 + 0.25)


def group(prompt: str, *rows: tuple[str, int]) -> list[Rollout]:
    return [
        replace(rollout(text, length), prompt=rollout("").prompt.model_copy(update={"id": prompt}))
        for text, length in rows
    ]


RIGHT, WRONG = "#### 5", "#### 6"


def test_long2short_by_hand() -> None:
    """Lengths 10, 20, 40: r' = 1.2, 0.96, 0.84; wrong answers are left alone."""
    rows = group("a", (RIGHT, 10), (WRONG, 1), (RIGHT, 20), (RIGHT, 40))
    found = REWARDS["long2short"](rows, None)
    assert found == pytest.approx([0.2, 0.0, -0.04, -0.16])
    assert sum(found) == pytest.approx(0)
    double = build(REWARDS, Plugin(name="long2short", options={"strength": 0.4}))
    assert double(rows, None) == pytest.approx([0.4, 0.0, -0.08, -0.32])


def test_long2short_compares_within_a_prompt() -> None:
    first, second = group("a", (RIGHT, 10), (RIGHT, 30)), group("b", (RIGHT, 1), (RIGHT, 1))
    found = REWARDS["long2short"]([*first, *second], None)
    assert found == pytest.approx([0.2, -0.2, 0.0, 0.0])


@pytest.mark.parametrize(
    "rows",
    [[(RIGHT, 7)], [(RIGHT, 7), (WRONG, 9)], [(WRONG, 7), (WRONG, 9)], [(RIGHT, 0), (RIGHT, 1)]],
)
def test_long2short_without_a_difference_is_zero(rows: list[tuple[str, int]]) -> None:
    assert REWARDS["long2short"](group("a", *rows), None) == [0.0] * len(rows)


def diff(path: str, removed: str, added: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n x\n-{removed}\n+{added}"


def proposed(text: str, answer: str, **options: object) -> float:
    prompt = rollout("").prompt.model_copy(update={"answer": answer, "task": "text"})
    part = build(REWARDS, Plugin(name="patch_similarity", options=options))
    (found,) = part([replace(rollout(text), prompt=prompt)], None)
    return found


def test_similarity_by_hand() -> None:
    assert similarity({"a": "abcd"}, {"a": "abxd"}) == 0.75
    assert similarity({"a": "abcd", "b": "abcd"}, {"a": "abxd"}) == 0.375
    assert similarity({"a": "abcd"}, {"a": "abxd", "b": "abcd"}) == 0.375
    assert similarity({}, {}) == 1.0


def test_popular_characters_count() -> None:
    """difflib's heuristic would call 200 equal characters junk, and the likeness 0."""
    assert similarity({"a": "y" + "x" * 299}, {"a": "x" * 299 + "z"}) == pytest.approx(299 / 300)


def test_a_patch_is_compared_file_by_file() -> None:
    gold = f"{diff('m.py', 'one', 'two')}\n{diff('n.py', 'a', 'b')}"
    assert proposed(gold, gold) == 1.0
    half = proposed(diff("m.py", "one", "two"), gold)
    assert half == 0.5
    near = proposed(diff("m.py", "one", "twa"), gold)
    assert 0 < near < half
    assert proposed(diff("other.py", "one", "two"), diff("m.py", "one", "two")) == 0.0


@pytest.mark.parametrize(
    "wrapped",
    [
        "Here it is:\n```diff\n{}\n```\nDone.",
        "```\n{}\n```",
        "\n{}\n\n",
        "diff --git a/m.py b/m.py\nindex 1..2 100644\n{}",
    ],
)
def test_what_surrounds_a_patch_does_not_matter(wrapped: str) -> None:
    gold = diff("m.py", "one", "two")
    assert proposed(wrapped.format(gold), gold) == 1.0
    assert proposed(wrapped.format(gold.replace("@@\n", "@@ def f():\n")), gold) == 1.0


def test_headers_name_new_deleted_and_removed_dashes() -> None:
    new = "--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+one"
    gone = "--- a/m.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-one"
    assert list(file_diffs(new)) == list(file_diffs(gone)) == ["m.py"]
    dashes = diff("m.py", "-- x", "y")
    assert file_diffs(dashes) == {"m.py": "@@ -1,2 +1,2 @@\n x\n--- x\n+y"}


GOLD = diff("m.py", "one", "two")


@pytest.mark.parametrize(
    "text",
    [
        "", "I cannot.", "#### 5", "--- a/m.py", "--- a/m.py\n+++ b/m.py",
        "--- a/m.py\n+++ b/m.py\n+two", f"{GOLD}\nso this is it", f"{GOLD}\n{GOLD}",
        diff("m.py", "one", "one"), "--- \n+++ \n@@ -1 +1 @@\n-a\n+b",
        "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b",
        f"```diff\n{GOLD}\n```\n```diff\n{GOLD}\n```", diff("m.py", "one", "x" * 30_000),
    ],
)  # fmt: skip
def test_a_patch_with_a_fault_of_format_is_minus_one(text: str) -> None:
    assert proposed(text, GOLD) == -1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>It is one.</think>\n<solution>{}</solution>", 1.0),
        ("<think> </think>\n<solution>{}</solution>", -1.0),
        ("<think>a</think><think>b</think><solution>{}</solution>", -1.0),
        ("<solution>{}</solution><think>a</think>", -1.0),
        ("{}", -1.0),
    ],
)
def test_with_thinking_each_tag_stands_once(text: str, expected: float) -> None:
    assert proposed(text.format(f"\n{GOLD}\n"), GOLD, thinking=True) == expected


def test_an_answer_that_is_no_patch_is_a_fault_of_the_data() -> None:
    with pytest.raises(ValueError, match="neither a file nor a hunk"):
        proposed(GOLD, "42")
