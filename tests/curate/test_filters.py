"""Filters: one worked example of each reason, and laws that every filter keeps."""

from collections.abc import Callable

import pytest

from posttrain.curate.filters import FILTERS, Filter
from posttrain.errors import ConfigError, DataError
from posttrain.plugins import Plugin, build
from posttrain.records import RawRow

TEXT = "Ann has 12 pens. She buys 5 more. How many pens does Ann have now?"
RIGHT = "12 + 5 = 17\n#### 17"
WRONG = "12 + 5 = 16\n#### 16"


def row(prompt: str = TEXT, answer: str | None = "17", **fields: str) -> RawRow:
    given: dict[str, object] = {"source": "test", "task": "arithmetic", **fields}
    return RawRow.of(prompt=prompt, answer=answer, **given)  # type: ignore[arg-type]


def made(name: str, **options: object) -> Filter:
    filter_: Filter = build(FILTERS, Plugin(name=name, options=options), "curate.filters")()
    return filter_


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("schema", row(prompt=" \n"), "empty prompt"),
        ("schema", row(answer=None), "no answer"),
        ("schema", row(answer=" ", split="eval"), "no answer"),
        ("schema", row(response=""), "empty response"),
        ("schema", row(chosen=RIGHT, rejected=" "), "empty response"),
        ("schema", row(chosen=RIGHT), "half a pair"),
        ("schema", row(rejected=WRONG), "half a pair"),
        ("schema", row(response="12 + 5 = 17"), "no `####` in the response"),
        ("length", row(prompt="a" * 4097), "prompt too long"),
        ("length", row(response="a" * 4097), "response too long"),
        ("length", row(chosen="a", rejected="a" * 4097), "response too long"),
        ("identical_pair", row(chosen="a  b", rejected="a b\n"), "identical pair"),
        ("wrong_answer", row(response=WRONG), "wrong answer"),
        ("wrong_answer", row(chosen=WRONG, rejected=RIGHT), "the chosen response is wrong"),
        (
            "wrong_answer",
            row(chosen=RIGHT, rejected=f"So:\n{RIGHT}"),
            "the rejected response is right",
        ),
    ],
)
def test_a_bad_row_is_dropped_with_its_reason(name: str, bad: RawRow, reason: str) -> None:
    assert made(name)(bad) == reason


GOOD = (
    row(),
    row(split="eval", prompt="Eva has 3 cups. She buys 4 more. How many cups does Eva have now?"),
    row(response=RIGHT),
    row(chosen=RIGHT, rejected=WRONG),
    row(chosen=RIGHT, rejected="12 + 5 = 17", prompt=TEXT.replace("pens", "keys")),
    row(task="pandalm", answer=None, chosen="Hello!", rejected="hello"),
    row(task="pandalm", answer=None, response="🙂", prompt="Say it in one sign. 🙂"),
)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_every_filter_keeps_good_rows(name: str) -> None:
    judge = made(name)
    assert [judge(good) for good in GOOD] == [None] * len(GOOD)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_reads_the_source(name: str) -> None:
    rows = [*GOOD, row(response=WRONG), row(response=RIGHT), row(prompt=""), row(answer=None)]
    plain, labelled = made(name), made(name)
    relabelled = [each.model_copy(update={"source": "x+wrong_answer"}) for each in rows]
    assert [plain(each) for each in rows] == [labelled(each) for each in relabelled]


VARIANTS = {
    "respaced": TEXT.replace(" ", "  ").replace(". ", ".\n"),
    "upper case": TEXT.upper(),
    "repunctuated": TEXT.replace(".", " !").rstrip("?"),
    "renamed": TEXT.replace("Ann", "Robin"),
}
OTHERS = {
    "another number": TEXT.replace("5", "6"),
    "numbers swapped": TEXT.replace("12", "_").replace("5", "12").replace("_", "5"),
    "another step": TEXT.replace("She buys", "She loses 2. Then she buys"),
    "another story": "Tom has 12 cups in 5 boxes. How many cups has Tom?",
}


def duplicates(first: str, second: str, **fields: str) -> list[str | None]:
    filters = [made("exact_duplicate"), made("near_duplicate")]
    for judge in filters:
        assert judge(row(prompt=first, **fields)) is None
    return [judge(row(prompt=second, **fields)) for judge in filters]


@pytest.mark.parametrize("name", sorted(VARIANTS))
@pytest.mark.parametrize("fields", [{}, {"response": RIGHT}, {"chosen": RIGHT, "rejected": WRONG}])
def test_a_variant_is_a_duplicate(name: str, fields: dict[str, str]) -> None:
    exact, near = duplicates(TEXT, VARIANTS[name], **fields)
    assert near == "near duplicate"
    assert exact == (None if name == "renamed" else "exact duplicate")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_another_problem_is_no_duplicate(name: str) -> None:
    assert duplicates(TEXT, OTHERS[name]) == [None, None]


def test_two_ways_to_answer_one_prompt_are_both_kept() -> None:
    for name in ("exact_duplicate", "near_duplicate"):
        judge = made(name)
        assert judge(row(response=RIGHT)) is None
        assert judge(row(response="First 12, then 5 more: that is 17 pens.\n#### 17")) is None
        assert judge(row(response=RIGHT)) is not None


def test_pairs_that_share_one_response_are_both_kept() -> None:
    for name in ("exact_duplicate", "near_duplicate"):
        judge = made(name)
        assert judge(row(chosen=RIGHT, rejected=WRONG)) is None
        assert judge(row(chosen=RIGHT, rejected="It is 7, as 12 - 5 = 7.\n#### 7")) is None
        assert judge(row(chosen=RIGHT, rejected=WRONG)) is not None


def test_kinds_do_not_duplicate_each_other() -> None:
    for name in ("exact_duplicate", "near_duplicate"):
        judge = made(name)
        for fields in ({}, {"response": RIGHT}, {"chosen": RIGHT, "rejected": WRONG}):
            assert judge(row(**fields)) is None
        assert judge(row(split="eval")) is None


def test_texts_of_signs_alone_are_told_apart() -> None:
    for name in ("exact_duplicate", "near_duplicate"):
        judge = made(name)
        assert judge(row(prompt="🙂 🙃")) is None
        assert judge(row(prompt="🚀 🚀")) is None
        assert judge(row(prompt="🙂  🙃")) is not None


@pytest.mark.parametrize(
    ("name", "reason"),
    [("renamed", "like an evaluation prompt")]
    + [(name, "an evaluation prompt") for name in ("respaced", "upper case", "repunctuated")],
)
def test_a_leaked_evaluation_prompt_is_contamination(name: str, reason: str) -> None:
    judge = made("contamination")
    assert judge(row(split="eval")) is None
    assert judge(row(prompt=VARIANTS[name], response=RIGHT)) == reason


def test_another_problem_is_no_contamination() -> None:
    judge = made("contamination")
    assert judge(row(split="eval")) is None
    assert [judge(row(prompt=text)) for text in OTHERS.values()] == [None] * len(OTHERS)


def test_an_evaluation_prompt_inside_a_longer_one_is_contamination() -> None:
    inside = f"Read with care, then answer at length. {TEXT} Give all your reasons for it."
    asked: list[tuple[dict[str, int], str | None]] = [
        ({"run": 13}, "shares 13 words in a row with an evaluation prompt"),
        ({"run": 0}, None),
    ]
    for options, reason in asked:
        judge = made("contamination", **options)
        assert judge(row(split="eval")) is None
        assert judge(row(prompt=inside)) == reason


def test_one_word_makes_another_puzzle() -> None:
    puzzle = "Knights tell the truth, knaves lie. Ann: Ben is a knight. Ben: Ann is a knave. Who?"
    other = puzzle.replace("a knave. W", "a knight. W")
    fields = {"task": "knights_knaves", "answer": "Ann knight, Ben knave"}
    assert made("near_duplicate", exact_tasks=())(row(puzzle, **fields)) is None
    for name in ("near_duplicate", "contamination", "exact_duplicate"):
        judge = made(name)
        assert judge(row(puzzle, split="eval", **fields)) is None
        assert judge(row(other, **fields)) is None


def test_a_verifiable_row_of_an_unknown_task_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown task `aritmetic`"):
        made("schema")(row(task="aritmetic"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lenght", {}),
        ("length", {"promt": 3}),
        ("length", {"prompt": 0}),
        ("contamination", {"run": -1}),
    ],
)
def test_bad_options_are_told(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        made(name, **options)


def test_numbers_written_differently_are_the_same() -> None:
    make: Callable[[str], RawRow] = lambda number: row(prompt=f"What is {number} + 1?")  # noqa: E731
    judge = made("exact_duplicate")
    assert judge(make("1,200")) is None
    assert judge(make("1200")) == "exact duplicate"
    assert judge(make("1.200")) is None
    assert judge(row(prompt="What is 1200 - 1?")) is None
