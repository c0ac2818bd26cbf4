"""Each instruction of IFEval on a response that follows and one that does not."""

import json
import os
from pathlib import Path

import pytest

from posttrain.benchmark.following import checked
from posttrain.benchmark.instructions import INSTRUCTIONS, follows, loosened
from posttrain.records import Sample

DATA = Path(
    os.environ.get("POSTTRAIN_DATA") or Path(__file__).parents[2].resolve() / "../shared/data"
)

CASES: list[tuple[str, dict[str, object], str, str]] = [
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "WE are HERE now",
        "We are HERE",
    ),
    ("change_case:english_capital", {}, "ALL OF IT, 3 TIMES.", "Not ALL"),
    ("change_case:english_lowercase", {}, "all of it, 3 times.", "Not all"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. Yes.", "Yes. Say it."),
    ("combination:two_responses", {}, "one\n******\ntwo", "same\n******\nsame"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] to [b]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP.S. more", "Bye."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S more", "P.S. more"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{a: 1}"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*one* and **two**",
        "*one* and ** **",
    ),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<A title>"),
    ("keywords:existence", {"keywords": ["intern", "grow"]}, "Interns grow", "Interns"),
    ("keywords:forbidden_words", {"forbidden_words": ["field"]}, "in fields", "The Field."),
    (
        "keywords:frequency",
        {"keyword": "knock", "frequency": 2, "relation": "at least"},
        "Knock, knock",
        "knock",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "less than"},
        "hey!",
        "hey!!",
    ),
    ("language:response_language", {"language": "ko"}, "안녕하세요 여러분", "Hello everybody"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "One.\n\n“Then two.",
        "Then one.\n\nTwo.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "less than"},
        "One. Two!",
        "One. Two! And three",
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        "one two three",
        "one two",
    ),
    ("punctuation:no_comma", {}, "one and two", "one, two"),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. THE END."', "The end. So"),
    ("startend:quotation", {}, ' "all of it" ', '"'),
]


@pytest.mark.parametrize(("kind", "how", "good", "bad"), CASES)
def test_a_rule_tells_who_follows(kind: str, how: dict[str, object], good: str, bad: str) -> None:
    assert follows(kind, how, good) is True
    assert follows(kind, how, bad) is False
    assert follows(kind, how, " ") is False
    assert follows(kind, how, "x" * 2_000_000) in (True, False, None)


def test_every_instruction_has_a_case() -> None:
    assert {kind for kind, *_ in CASES} == INSTRUCTIONS.keys()


def test_what_no_rule_can_tell_is_not_guessed() -> None:
    assert follows("new:kind", {}, "text") is None
    assert follows("language:response_language", {"language": "vi"}, "xin chao") is None
    assert follows("language:response_language", {"language": "fa"}, "hello you") is False
    assert follows("language:response_language", {"language": "fa"}, "سلام دنیا") is None


def test_the_loose_variants() -> None:
    assert list(dict.fromkeys(loosened("Sure:\n*a*\nBye"))) == [
        "Sure:\n*a*\nBye",
        "Sure:\na\nBye",
        "*a*\nBye",
        "a\nBye",
        "Sure:\n*a*",
        "Sure:\na",
        "*a*",
        "a",
    ]


def test_counts_by_hand() -> None:
    asked = [["punctuation:no_comma", {}], ["startend:quotation", {}], ["new:kind", {}]]
    fields = {"suite": "ifeval", "item_id": "1", "index": 0, "prompt": "", "tokens": 1}
    given = Sample.model_validate(
        fields
        | {"answer": json.dumps(asked), "response": 'Sure:\n"one"', "correct": 0, "truncated": 0}
    )
    found = checked(given)
    assert found.correct == 0
    assert found.measures == {
        "told": 2,
        "untold": 1,
        "strict": 1,
        "loose": 2,
        "told_prompt": 0,
        "prompt_strict": 0,
        "prompt_loose": 0,
    }
    loosely = checked(given.model_copy(update={"answer": json.dumps(asked[:2])}))
    assert (loosely.measures or {})["prompt_loose"] == 1


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="no folder of public data files")
def test_upstreams_parameters_are_those_of_the_rules() -> None:
    """Every instruction of the file is checked without an error, and its type is known."""
    rows = (DATA / "ifeval/ifeval_input_data.jsonl").read_text(encoding="utf-8").splitlines()
    untold = 0
    for row in map(json.loads, rows):
        for kind, how in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            assert kind in INSTRUCTIONS
            untold += follows(kind, how, "Plain words. Nothing more") is None
    assert 0 < untold < 13
