"""Laws of every suite, and facts about those that read the public files."""

import os
from pathlib import Path

import pytest

from posttrain.benchmark.judged import JUDGED
from posttrain.benchmark.scorers import SCORERS, same_text
from posttrain.benchmark.suites import CHOICES, SUITES, Place
from posttrain.benchmark.suites.sources import Generated, HeldOut, Upstream
from posttrain.benchmark.suites.suite import items_digest
from posttrain.records import Prompt, content_id
from posttrain.rewards.verifiers import VERIFIERS, verify
from posttrain.tasks import split_of

DATA = Path(
    os.environ.get("POSTTRAIN_DATA") or Path(__file__).parents[2].resolve() / "../shared/data"
)
PUBLIC = [name for name, suite in SUITES.items() if isinstance(suite.source, Upstream)]
VERIFIED = [
    name
    for name in PUBLIC
    if SUITES[name].scorer in ("verified", "exact_match", "multiple_choice") and name != "livebench"
]
PROCEDURAL = ["arithmetic", "knights_knaves", "countdown", "bugfix"]

with_data = pytest.mark.skipif(not DATA.is_dir(), reason="no folder of public data files")


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_says_what_it_is(name: str) -> None:
    suite = SUITES[name]
    assert suite.name == name
    assert suite.scorer in SCORERS or suite.scorer in JUDGED
    assert "{question}" in suite.prompt
    assert all([suite.about, suite.paper, suite.licence, suite.contamination])
    assert CHOICES[name].__doc__ == suite.about
    if isinstance(suite.source, Upstream) and suite.source.hub:
        assert len(suite.source.hub.revision) == 40


@pytest.mark.parametrize("name", PROCEDURAL)
def test_procedural_items_are_held_out_and_fixed(name: str) -> None:
    items = SUITES[name].items(Place())
    assert len(items) >= 200
    assert len({item.prompt.id for item in items}) == len(items)
    assert {split_of(item.prompt.text) for item in items} == {"eval"}
    assert {item.prompt.difficulty for item in items} == {1, 2, 3, 4}
    assert items_digest(items) == items_digest(SUITES[name].items(Place()))


def test_a_smaller_limit_is_a_subset_in_the_same_order() -> None:
    ids = [item.prompt.id for item in CHOICES["countdown"](limit=50).items(Place())]
    fewer = [item.prompt.id for item in CHOICES["countdown"](limit=20).items(Place())]
    assert (len(ids), len(fewer)) == (50, 20)
    assert [each for each in ids if each in fewer] == fewer


def test_the_evaluation_port_comes_first(tmp_path: Path) -> None:
    from posttrain.artifacts import write_rows

    prompts = [
        Prompt(id=content_id(task, "1+1"), text="1+1", answer="2", task=task, source="test")
        for task in ("arithmetic", "number")
    ]
    write_rows(tmp_path / "one", prompts[:1])
    write_rows(tmp_path / "two", prompts[1:])
    source = HeldOut("arithmetic", otherwise=Generated("arithmetic", n=3, seed=0))
    assert [item.prompt for item in source.items(Place(tmp_path / "one"))] == prompts[:1]
    assert len(source.items(Place(tmp_path / "two"))) == 3
    assert [item.prompt for item in HeldOut().items(Place(tmp_path / "two"))] == prompts[1:]


def test_exact_match_by_hand() -> None:
    prompt = Prompt(id="1", text="?", answer="(B) two", task="text", source="test")
    assert same_text(prompt, "so\n#### (b)  Two")
    assert same_text(prompt, "(B) two")
    assert not same_text(prompt, "(B) two, I think")
    assert not same_text(prompt, "#### two")


@pytest.mark.realdata
@with_data
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("gsm8k", 1319),
        ("svamp", 697),
        ("mmlu_stem", 426),
        ("math", 40),
        ("bbh", 500),
        ("aqua", 52),
        ("truthfulqa", 122),
        ("ifeval", 266),
        ("xstest", 450),
        ("usb", 450),
        ("prmbench", 2519),
        ("mt_bench", 30),
        ("arena_hard", 500),
    ],
)
def test_public_files_hold_what_is_known(name: str, rows: int) -> None:
    """Rows that ask the same twice count once."""
    items = SUITES[name].items(Place(None, str(DATA)))
    assert rows * 0.97 <= len(items) <= rows


@pytest.mark.realdata
@with_data
@pytest.mark.parametrize("name", VERIFIED)
def test_the_right_answer_is_judged_right_and_a_wrong_one_wrong(name: str) -> None:
    suite = SUITES[name]
    items = CHOICES[name](limit=60).items(Place(None, str(DATA)))
    assert len(items) > 35
    for item in items:
        if item.options:
            assert item.prompt.answer in item.options
            continue
        if item.prompt.task == "code":  # tests/sandbox runs the reference solutions
            continue
        assert item.prompt.task in VERIFIERS
        assert suite.prompt == "{question}" or item.prompt.text != suite.prompt
        task, text, answer = item.prompt.task, item.prompt.text, item.prompt.answer
        assert verify(task, text, answer, f"#### {answer}")
        assert not verify(task, text, answer, "#### 123456789")


@pytest.mark.realdata
@with_data
def test_options_and_steps_are_labelled() -> None:
    place = Place(None, str(DATA))
    for item in CHOICES["truthfulqa"]().items(place):
        assert item.labels[0]
        assert not item.labels[-1]
        assert item.options[0] == item.prompt.answer
        assert len(item.labels) == len(item.options) == len(set(item.options))
    solutions = CHOICES["prmbench"]().items(place)
    clean = [item for item in solutions if all(item.labels)]
    assert {item.category for item in clean} == {"multi_solutions"}
    assert len({item.category for item in solutions}) == 9
    assert all(item.prompt.answer == "-1" for item in clean)
    safe = [item.prompt.answer for item in CHOICES["xstest"]().items(place)]
    assert (safe.count("safe"), safe.count("unsafe")) == (250, 200)
    leaves = {item.category for item in CHOICES["usb"]().items(place)}
    assert leaves == {
        "public/personal_rights",
        "public/content",
        "public/privacy",
        "ethical/bias",
        "national/culture_history",
    }


@pytest.mark.realdata
@with_data
def test_mawps_keeps_away_from_what_may_be_trained_on() -> None:
    items = SUITES["mawps"].items(Place(None, str(DATA)))
    assert len(items) > 150
    assert {split_of(item.prompt.text) for item in items} == {"eval"}
