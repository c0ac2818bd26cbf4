"""Judges that write: strict reading, one set of criteria a query, verdicts, and their kinds."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import content_files, write_rows
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.policies import load_policy
from posttrain.records import Preference, Prompt, RawRow, content_id
from posttrain.reward_model.costs import costs_of, parse_failures
from posttrain.reward_model.generative.judges import (
    CriteriaJudge,
    PairJudge,
    PointwiseJudge,
    VerdictJudge,
)
from posttrain.reward_model.generative.pairs import (
    JUDGING,
    case_of,
    judging_row,
    prefers_the_chosen,
    verdict_of,
)
from posttrain.reward_model.generative.templates import BOXED, COMPACT, TEMPLATES, Scores
from posttrain.reward_model.generative.writers import EngineWriter, Written
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.stage import RewardModelConfig, RewardModelReport, run
from posttrain.reward_model.tournament import Tournament
from posttrain.rewards.verifiers import VERIFIERS

NAN = math.nan


class Scripted:
    """A writer that knows its answers by a word of the question."""

    def __init__(self, **answers: Written | None) -> None:
        self.answers, self.asked = answers, list[str]()
        self.tally: Counter[str] = Counter()

    def write(self, questions: Sequence[str], max_tokens: int) -> list[Written | None]:
        self.asked += questions
        return [next(a for word, a in self.answers.items() if word in q) for q in questions]


def whole(text: str) -> Written:
    return Written(text, truncated=False)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("1. \\boxed{4}\n2. \\boxed{3.5}\nOverall: \\boxed{8}", 8.0),
        ("Overall: \\boxed{7.5}\n", 7.5),
        ("**Overall:** \\boxed{0}", 0.0),
        ("Overall: \\boxed{10}.", 10.0),
        ("1. \\boxed{4}\n2. \\boxed{3.5}", NAN),
        ("Overall: \\boxed{8}\nand yet", NAN),
        ("Overall: \\boxed{8", NAN),
        ("Overall: 8", NAN),
        ("Overall: \\boxed{-1}", NAN),
        ("Overall: \\boxed{10.5}", NAN),
        ("Overall: \\boxed{7.3}", NAN),
        ("Overall: \\boxed{inf}", NAN),
        ("Overall: \\boxed{1e1}", NAN),
        ("Overall: \\boxed{" + "9" * 9999 + "}", NAN),
        ("", NAN),
    ],
)
def test_only_a_complete_overall_score_counts(text: str, score: float) -> None:
    assert BOXED.read_score(text) == pytest.approx(score, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("so\nScores: \\boxed{7} \\boxed{4.5}", (7.0, 4.5)),
        ("Scores: \\boxed{7}, \\boxed{7}", (7.0, 7.0)),
        ("Scores: \\boxed{7}", (NAN, NAN)),
        ("Scores: \\boxed{7} \\boxed{11}", (NAN, NAN)),
        ("\\boxed{7} \\boxed{4.5}", (NAN, NAN)),
    ],
)
def test_two_scores_or_none(text: str, scores: tuple[float, float]) -> None:
    assert BOXED.read_pair(text) == pytest.approx(scores, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "criteria"),
    [
        ("Hm.\n[Start of Criteria]\n1. a\n2. b\n[End of Criteria]", "1. a\n2. b"),
        ("[Start of Criteria]\n1. a", None),
        ("1. a\n[End of Criteria]", None),
        ("[Start of Criteria]\n\n[End of Criteria]", None),
        ("[Start of Criteria]a[End of Criteria][Start of Criteria]b[End of Criteria]", None),
    ],
)
def test_criteria_stand_between_their_marks(text: str, criteria: str | None) -> None:
    assert BOXED.read_criteria(text) == criteria


def test_the_compact_form() -> None:
    assert COMPACT.read_criteria("C:ab") == "ab"
    assert [COMPACT.read_criteria(t) for t in ("C:", "ab", "C:a|S:7", "C:" + "a" * 65)] == [
        None
    ] * 4
    assert [COMPACT.read_score(t) for t in ("S:7", "S: 6.5")] == [7.0, 6.5]
    assert all(math.isnan(COMPACT.read_score(t)) for t in ("7", "S:", "S:77", "S:7 or 8", "C:ab"))
    assert COMPACT.read_pair("1") == Scores(1.0, 0.0)
    assert COMPACT.read_pair("2\n") == Scores(0.0, 1.0)
    assert all(math.isnan(COMPACT.read_pair(t).first) for t in ("", "12", "3"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_takes_any_text(name: str) -> None:
    odd = "{query} {0} {{x}} \\boxed{9}"
    template = TEMPLATES[name]
    for words in (template.criteria, template.evaluation, template.score, template.pair):
        asked = words.format(query=odd, criteria=odd, response=odd, first=odd, second=odd)
        assert odd in asked
    assert "{response}" not in template.criteria


def test_one_set_of_criteria_a_query_however_many_responses() -> None:
    writer = Scripted(
        Criteria=whole("C:ab"), good=whole("S:8"), worse=whole("S:8.5"), cut=Written("S:9", True)
    )
    judge = CriteriaJudge(writer, COMPACT, 8, 8)
    responses = ["good", "good 2", "worse", "cut"]
    found = judge.score(["q"] * 4, responses)
    assert found == pytest.approx([8.0, 8.0, 8.5, NAN], nan_ok=True)
    assert judge.score(["q", "r"], ["good", "good"]) == [8.0, 8.0]
    assert [q for q in writer.asked if q.endswith("Criteria?")] == ["q\nCriteria?", "r\nCriteria?"]
    assert all("\nC:ab\n" in q for q in writer.asked if q.endswith("Score?"))
    assert costs_of(judge) == {"asked": 8, "criteria": 2, "truncated": 1}


def test_a_query_without_criteria_scores_nothing_and_may_get_them_later() -> None:
    writer = Scripted(Criteria=None, good=whole("S:8"))
    judge = CriteriaJudge(writer, COMPACT, 8, 8)
    assert all(map(math.isnan, judge.score(["q"] * 3, ["good"] * 3)))
    assert len(writer.asked) == 1
    assert parse_failures(costs_of(judge)) == {"unread_share": 1.0}
    writer.answers["Criteria"] = whole("C:ab")
    assert judge.score(["q"], ["good"]) == [8.0]


def test_a_pair_and_its_swap() -> None:
    writer = Scripted(Better=whole("1"))
    judge = PairJudge(writer, COMPACT, 4)
    assert judge.compare(["q", "q"], ["a", "b"], ["b", "a"]) == [1.0, 1.0]
    writer.answers["Better"] = whole("first")
    assert math.isnan(judge.compare(["q"], ["a"], ["b"])[0])
    assert parse_failures(costs_of(Tournament(judge))) == {"unread_share": 1 / 3}
    assert PointwiseJudge(writer, COMPACT, 4).score([], []) == []


def test_the_verdict_by_likelihood_is_the_engines(tiny_policy: Path) -> None:
    policy = load_policy(tiny_policy)
    engine = TransformersEngine(policy)
    judge = VerdictJudge(EngineWriter(policy, engine), COMPACT)
    found = judge.compare(["q", "q" * 2000], ["good", "a"], ["bad", "b"])
    question = COMPACT.verdict.format(query="q", first="good", second="bad")
    one, two = (math.fsum(row) for row in engine.logps([question] * 2, ["1", "2"]))
    assert found == pytest.approx([one - two, NAN], abs=1e-5, nan_ok=True)
    assert costs_of(judge)["unanswered"] == 1


def test_a_question_without_room_is_not_asked(tiny_policy: Path) -> None:
    policy = load_policy(tiny_policy)
    writer = EngineWriter(policy, TransformersEngine(policy))
    answer, none = writer.write(["short", "long " * 600], max_tokens=4)
    assert none is None
    assert answer is not None
    assert writer.tally["too_long"] == writer.tally["requests"] == 1
    assert writer.write(["short", "short"], max_tokens=4) == [answer, answer]
    assert writer.tally["requests"] == 2


PAIR = RawRow.of(source="s", task="t", prompt="Say {so}", chosen="good", rejected="bad")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_pair_becomes_a_prompt_with_a_verifier(template: Any) -> None:
    row = judging_row(PAIR, template)
    assert row.kind == "prompts"
    prompt = Prompt(id="1", text=row.prompt, answer=row.answer or "", task=row.task, source="s")
    case = case_of(prompt)
    assert case is not None
    assert (case.query, case.chosen, case.rejected) == ("Say {so}", "good", "bad")
    assert (row.prompt.index("good") < row.prompt.index("bad")) == case.chosen_first
    right, wrong = ("1", "2") if case.chosen_first else ("2", "1")
    if template == "boxed":
        scores = {"1": "Scores: \\boxed{9} \\boxed{1}", "2": "Scores: \\boxed{1} \\boxed{9}"}
        right, wrong = scores[right], scores[wrong]
    verifier = VERIFIERS[JUDGING]
    assert verifier.verify(row.prompt, row.answer or "", right)
    assert not verifier.verify(row.prompt, row.answer or "", wrong)
    assert verifier.prediction(right) == ("1" if case.chosen_first else "2")


@pytest.mark.parametrize("answer", ["", "{}", "[1]", "1", "null", '{"template": "x"}'])
def test_what_is_no_pair_is_no_trouble(answer: str) -> None:
    assert not prefers_the_chosen("", answer, "1")
    assert case_of(Prompt(id="1", text="?", answer=answer, task=JUDGING, source="s")) is None
    assert verdict_of("Scores: \\boxed{2} \\boxed{2}") == "tie"
    assert verdict_of("no idea") is None


def test_the_order_of_pairs_is_even() -> None:
    rows = [judging_row(PAIR.model_copy(update={"prompt": str(n)}), "compact") for n in range(200)]
    first = [prefers_the_chosen("", row.answer or "", "1") for row in rows]
    assert 80 < sum(first) < 120


@pytest.fixture
def preferences(tmp_path: Path) -> Path:
    rows = [
        Preference(
            id=str(n),
            prompt_id=content_id(str(n)),
            prompt=f"Say {n}",
            chosen="good",
            rejected="bad word",
            source="test",
        )
        for n in range(12)
    ]
    write_rows(tmp_path / "preferences", rows)
    return tmp_path / "preferences"


def made(kind: dict[str, Any], policy: Path, preferences: Path, root: Path) -> RewardModelReport:
    config = RewardModelConfig.model_validate({"kind": kind, "eval_share": 0.5})
    ports = {"policy": policy, "preferences": preferences, "judge": root / "judge"}
    return run(config, **ports, journal=Journal(root / "journal"))


def test_a_pairwise_judge_by_likelihood_through_the_stage(
    tiny_policy: Path, preferences: Path, tmp_path: Path
) -> None:
    kind = {"name": "pairwise", "verdict": "likelihood", "template": "compact"}
    report = made(kind, tiny_policy, preferences, tmp_path)
    # A random policy likes one of the two places, whoever stands there.
    assert report.panel.swap is not None
    assert report.panel.swap.flips == 1.0
    assert report.panel.swap.first_wins in (0.0, 1.0)
    assert any("order of two responses" in reason for reason in report.panel.reasons)
    assert report.panel.unscored == 0
    assert report.numbers["unread_share"] == 0.0
    assert report.numbers["completion_tokens"] == 2 * report.numbers["requests"]
    with pytest.raises(DataError, match="did not pass"):
        load_judge(tmp_path / "judge")
    judge = load_judge(tmp_path / "judge", allow_failed=True)
    assert all(map(math.isfinite, judge.score(["q"] * 3, ["a", "b", "c"])))


@pytest.mark.parametrize("name", ["pairwise", "ce_rm"])
def test_a_policy_that_never_writes_the_form_is_a_failed_judge(
    name: str, tiny_policy: Path, preferences: Path, tmp_path: Path
) -> None:
    kind = {"name": name, "max_tokens": 4}
    report = made(kind, tiny_policy, preferences, tmp_path)
    assert not report.panel.passed
    assert report.panel.unscored == report.panel.held_out.pairs
    assert report.numbers["unread_share"] == 1.0
    files = content_files(tmp_path / "judge")
    assert content_files(tiny_policy).items() <= files.items()
    assert {"judge.json", "panel.json"} <= files.keys()
