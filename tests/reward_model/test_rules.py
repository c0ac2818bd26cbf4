"""Rule and rubric judges: rules by hand, questions by the policy's own chances, both staged."""

import math
import random
from pathlib import Path

import pytest

from posttrain.artifacts import write_rows
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import ConfigError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.policies import load_policy
from posttrain.records import Preference, content_id
from posttrain.reward_model.kinds import KINDS
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.rubric import QUESTION
from posttrain.reward_model.rules import RULES, brief, concludes, equations, grounded, varied
from posttrain.reward_model.rules import format as formatted
from posttrain.reward_model.stage import RewardModelConfig, RewardModelReport, preflight, run
from posttrain.tasks.arithmetic import corrupt, generate

TELLING = "6 / 2 = 3\n3 + 4 = 7\n#### 7"


def test_rules_by_hand() -> None:
    assert equations("", TELLING) == 1.0
    assert equations("", "7 / 2 = 3\n3 + 4 = 7\n4 - 1 = 2") == pytest.approx(1 / 3)
    assert equations("", "5 / 0 = 5\n0 / 0 = 3") == 0.0
    assert equations("", "no sums") == equations("", f"{'9' * 5000} + 1 = 2") == 0.0
    # 6, 2 and 4 are told, 3 is a result
    assert grounded("6 apples, 2 piles, 4 more", TELLING) == 1.0
    assert grounded("6 apples, 2 piles", TELLING) == 0.75
    assert concludes("", TELLING) == 1.0
    assert concludes("", "3 + 4 = 7\n#### 8") == concludes("", "#### 8") == 0.0
    assert (formatted("", TELLING), formatted("", "7")) == (1.0, 0.0)
    assert brief("", "w " * 150, words=100, buffer=100) == 0.5
    assert brief("", "w " * 900, words=100, buffer=100) == 0.0
    # a b a b a: ab, ba, ab, ba
    assert varied("", "a b A b a", n=2) == 0.5
    assert varied("", "a", n=2) == 1.0


@pytest.mark.parametrize("name", RULES)
def test_every_rule_stays_in_its_range_and_never_raises(name: str) -> None:
    options = {
        "pattern": {"pattern": "x+"},
        "instruction": {"kind": "punctuation:no_comma"},
    }.get(name, {})
    rule = build(RULES, Plugin(name=name, options=options))
    for response in ("", " \n", TELLING, "#### ", "9" * 6000, "x, y" * 50, "\ud800 1 + 1 = 3"):
        assert 0 <= rule("What is 1 + 1?", response) <= 1
    if name == "pattern":
        assert (rule("", "ax"), rule("", "b")) == (1.0, 0.0)
    if name == "instruction":
        assert (rule("", "a b"), rule("", "a, b")) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "criteria", "what"),
    [
        ("rules", [], "no criteria"),
        ("rules", [{"question": "Is it kind?"}], "a question"),
        ("rules", [{"rule": "equation"}], "unknown plug-in `equation`"),
        ("rubric", [{"rule": "format", "question": "Is it kind?"}], "bad value"),
        ("rubric", [{"rule": {"name": "pattern", "pattern": "("}}], "bad value for `pattern`"),
        ("rubric", [{"rule": {"name": "instruction", "kind": "be:nice"}}], "bad value for `kind`"),
        (
            "rubric",
            [{"rule": {"name": "instruction", "kind": "length_constraints:number_words"}}],
            "bad parameters",
        ),
    ],
)
def test_a_misfit_is_found_before_any_work(
    kind: str, criteria: list[dict[str, object]], what: str
) -> None:
    config = RewardModelConfig(kind=Plugin(name=kind, options={"criteria": criteria}))
    faults = list(preflight(config))
    assert faults
    assert what in faults[0].what
    with pytest.raises(ConfigError):
        build(KINDS, config.kind)()


def preferences(folder: Path) -> Path:
    rng = random.Random(0)
    rows = []
    for _ in range(120):
        problem = generate(rng, rng.randint(1, 3))
        wrong, _ = corrupt(rng, problem)
        rows.append(
            Preference(
                id=content_id(problem.text, problem.solution, wrong),
                prompt_id=content_id("arithmetic", problem.text),
                prompt=problem.text,
                chosen=problem.solution,
                rejected=wrong,
                source="arithmetic",
            )
        )
    write_rows(folder, rows)
    return folder


def judged(
    kind: str, criteria: list[dict[str, object]], policy: Path, tmp_path: Path
) -> RewardModelReport:
    return run(
        RewardModelConfig(
            kind=Plugin(name=kind, options={"criteria": criteria}), eval_share=0.4, max_length=192
        ),
        policy=policy,
        preferences=preferences(tmp_path / "preferences"),
        judge=tmp_path / "judge",
        journal=Journal(tmp_path / "journal"),
    )


def test_rules_as_a_judge(tiny_policy: Path, tmp_path: Path) -> None:
    criteria = [
        {"rule": "equations", "weight": 4},
        {"rule": "concludes", "weight": 2},
        {"rule": "format"},
    ]
    report = judged("rules", criteria, tiny_policy, tmp_path)
    assert (report.kind, report.steps, report.tokens) == ("rules", 0, 0)
    assert report.train_loss_first is None
    # Over half of the mistakes are slips in an equation or another answer; the rest are ties.
    assert 0.5 < report.panel.held_out.accuracy < 1.0
    assert report.panel.invariance.order == 0.0
    assert {path.name for path in (tmp_path / "judge").iterdir()} == {"judge.json", "panel.json"}
    judge = load_judge(tmp_path / "judge", allow_failed=True)
    scores = judge.score(["p", "p", "p"], [TELLING, "3 + 4 = 8\n#### 8", ""])
    assert scores == [7.0, 3.0, 0.0]


def test_questions_are_answered_by_the_policys_chances(tiny_policy: Path, tmp_path: Path) -> None:
    question = "Is every number right?"
    criteria = [{"question": question, "weight": 3}, {"rule": "format", "weight": 0.5}]
    report = judged("rubric", criteria, tiny_policy, tmp_path)
    assert report.panel.held_out.pairs > 20
    judge = load_judge(tmp_path / "judge", allow_failed=True)
    asked = QUESTION.format(prompt="p", response=TELLING, question=question)
    yes, no = TransformersEngine(load_policy(tiny_policy)).logps([asked] * 2, ["Yes", "No"])
    chance = 1 / (1 + math.exp(sum(no) - sum(yes)))
    found = judge.score(["p", "p " * 600, "p"], [TELLING, "a", TELLING])
    assert found[0] == pytest.approx(3 * chance + 0.5, abs=1e-5)
    assert math.isnan(found[1])
    assert found[2] == found[0]
