"""Filters: one worked example of each reason, and laws that every filter keeps."""

import pytest

from posttrain.curate.filters import FILTERS
from posttrain.curate.operators import Operator, judge
from posttrain.errors import ConfigError, DataError
from posttrain.plugins import Plugin, build
from posttrain.records import RawRow

TEXT = "Ann has 12 pens. She buys 5 more. How many pens does Ann have now?"
RIGHT = "12 + 5 = 17\n#### 17"
WRONG = "12 + 5 = 16\n#### 16"


LINE = "Ann takes all of her pens out of the box and counts them one by one on the table."
OTHER = (
    "Then some friend comes by, who asks whether twelve small boxes would hold as many, or if"
    " every child had better bring another big bag from home tomorrow morning before school."
)
GERMAN = "Anna hat zwölf Stifte und kauft noch fünf dazu. Wie viele Stifte hat sie nun?"


def row(prompt: str = TEXT, answer: str | None = "17", **fields: str | float) -> RawRow:
    given: dict[str, object] = {"source": "test", "task": "arithmetic", **fields}
    return RawRow.of(prompt=prompt, answer=answer, **given)  # type: ignore[arg-type]


def made(name: str, **options: object) -> Operator:
    operator: Operator = build(FILTERS, Plugin(name=name, options=options), "curate.filters")()
    return operator


def said(name: str, *rows: RawRow, **options: object) -> list[str | None]:
    """What a filter says of each of some rows."""
    return judge([(name, made(name, **options))], rows)


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
        ("language", row(prompt="Сколько ручек у Анны теперь?"), "another script"),
        ("language", row(response="昨日、彼女は本を買いました。"), "another script"),
        ("language", row(prompt=f"{GERMAN} {GERMAN}"), "another language"),
        ("repetition", row(response="\n".join([LINE, OTHER, LINE, LINE])), "duplicate lines"),
        ("repetition", row(response=f"{'go on ' * 30}{OTHER}"), "one 2-gram again and again"),
        ("boilerplate", row(response="As an AI language model, I count 17."), "boilerplate"),
        ("boilerplate", row(prompt="Lorem ipsum dolor."), "boilerplate"),
        ("agreement", row(agreement=0.6667), "too few annotators agree"),
    ],
)
def test_a_bad_row_is_dropped_with_its_reason(name: str, bad: RawRow, reason: str) -> None:
    assert said(name, bad) == [reason]


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
    assert said(name, *GOOD) == [None] * len(GOOD)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_reads_the_source(name: str) -> None:
    rows = [*GOOD, row(response=WRONG), row(response=RIGHT), row(prompt=""), row(answer=None)]
    relabelled = [each.model_copy(update={"source": "x+wrong_answer"}) for each in rows]
    assert said(name, *rows) == said(name, *relabelled)


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
    rows = [row(prompt=first, **fields), row(prompt=second, **fields)]
    pairs = [said(name, *rows) for name in ("exact_duplicate", "near_duplicate")]
    assert [pair[0] for pair in pairs] == [None, None]
    return [pair[1] for pair in pairs]


@pytest.mark.parametrize("name", sorted(VARIANTS))
@pytest.mark.parametrize("fields", [{}, {"response": RIGHT}, {"chosen": RIGHT, "rejected": WRONG}])
def test_a_variant_is_a_duplicate(name: str, fields: dict[str, str]) -> None:
    exact, near = duplicates(TEXT, VARIANTS[name], **fields)
    assert near == "near duplicate"
    assert exact == (None if name == "renamed" else "exact duplicate")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_another_problem_is_no_duplicate(name: str) -> None:
    assert duplicates(TEXT, OTHERS[name]) == [None, None]


DUPLICATES = {"exact_duplicate": "exact duplicate", "near_duplicate": "near duplicate"}


@pytest.mark.parametrize("name", sorted(DUPLICATES))
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"response": RIGHT}, {"response": "First 12, then 5 more: that is 17 pens.\n#### 17"}),
        (
            {"chosen": RIGHT, "rejected": WRONG},
            {"chosen": RIGHT, "rejected": "It is 7, as 12 - 5 = 7.\n#### 7"},
        ),
        ({"prompt": "🙂 🙃"}, {"prompt": "🚀 🚀"}),
        ({"prompt": "..."}, {"prompt": "!?"}),
    ],
    ids=["two responses", "one response shared", "signs", "stops"],
)
def test_only_the_same_row_again_is_a_duplicate(
    name: str, one: dict[str, str], other: dict[str, str]
) -> None:
    rows = [row(**one), row(**other), row(**one), row(**other)]
    assert said(name, *rows) == [None, None, DUPLICATES[name], DUPLICATES[name]]


@pytest.mark.parametrize("name", sorted(DUPLICATES))
def test_kinds_do_not_duplicate_each_other(name: str) -> None:
    kinds: list[dict[str, str]] = [
        {},
        {"response": RIGHT},
        {"chosen": RIGHT, "rejected": WRONG},
        {"split": "eval"},
    ]
    assert said(name, *(row(**fields) for fields in kinds)) == [None] * 4


def contaminated(prompt: str, *, run: int = 13, **fields: str) -> str | None:
    """What contamination says of a training row beside the evaluation row TEXT."""
    kept, found = said("contamination", row(split="eval"), row(prompt=prompt, **fields), run=run)
    assert kept is None
    return found


@pytest.mark.parametrize(
    ("name", "reason"),
    [("renamed", "like an evaluation prompt")]
    + [(name, "an evaluation prompt") for name in ("respaced", "upper case", "repunctuated")],
)
def test_a_leaked_evaluation_prompt_is_contamination(name: str, reason: str) -> None:
    assert contaminated(VARIANTS[name], response=RIGHT) == reason


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_another_problem_is_no_contamination(name: str) -> None:
    assert contaminated(OTHERS[name]) is None


def test_an_evaluation_prompt_inside_a_longer_one_is_contamination() -> None:
    inside = f"Read with care, then answer at length. {TEXT} Give all your reasons for it."
    assert contaminated(inside) == "shares 13 words in a row with an evaluation prompt"
    assert contaminated(inside, run=0) is None


def test_one_word_makes_another_puzzle() -> None:
    puzzle = "Knights tell the truth, knaves lie. Ann: Ben is a knight. Ben: Ann is a knave. Who?"
    other = puzzle.replace("a knave. W", "a knight. W")
    fields = {"task": "knights_knaves", "answer": "Ann knight, Ben knave"}
    rows = [row(puzzle, **fields), row(other, **fields)]
    assert said("near_duplicate", *rows) == said("exact_duplicate", *rows) == [None, None]
    assert said("near_duplicate", *rows, exact_tasks=()) == [None, "near duplicate"]
    rows[0] = row(puzzle, split="eval", **fields)
    assert said("contamination", *rows) == [None, None]


def test_a_verifiable_row_of_an_unknown_task_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown task `aritmetic`"):
        said("schema", row(task="aritmetic"))


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
    asked = ("1,200 + 1", "1200 + 1", "1.200 + 1", "1200 - 1")
    rows = [row(prompt=f"What is {each}?") for each in asked]
    assert said("exact_duplicate", *rows) == [None, "exact duplicate", None, None]
