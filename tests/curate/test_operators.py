"""Operators: laws of the family, and worked examples of those that compare or count."""

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.curate.batch import Batch
from posttrain.curate.embedding import char_ngrams
from posttrain.curate.filters import FILTERS
from posttrain.curate.filters.meaning import repeats, spread
from posttrain.curate.filters.text import duplicate_ngrams, repeated_lines, top_ngram
from posttrain.curate.likeness import bands, normal_forms, runs, shingles, sketched, words_of
from posttrain.curate.operators import Operator, Reasons, Sketch, by_row, judge, remembers
from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.raw.sources.math_files import math_files
from posttrain.raw.sources.preference_files import preference_files
from posttrain.records import RawRow

DATA = Path(os.environ.get("POSTTRAIN_DATA", Path(__file__).parents[3] / "shared/data"))

OPTIONS: dict[str, dict[str, object]] = {"k_center": {"k": 2}}
few = settings(max_examples=15)
LOCAL = sorted(name for name in FILTERS if not hasattr(FILTERS[name], "decide"))

odd_texts = (
    st.none() | st.text(max_size=40) | st.sampled_from(["\0", "\u2028", "e\u0301", "ſ", "½"])
)
rows = st.lists(
    st.builds(
        RawRow.of,
        source=st.just("test"),
        task=st.sampled_from(["number", "text"]),
        prompt=st.text(max_size=60),
        split=st.sampled_from(["train", "eval"]),
        answer=odd_texts,
        response=odd_texts,
        chosen=odd_texts,
        rejected=odd_texts,
        agreement=st.none() | st.floats(0, 1),
    ),
    max_size=4,
)


def made(name: str, **options: object) -> Operator:
    chosen = Plugin(name=name, options=OPTIONS.get(name, {}) | options)
    operator: Operator = build(FILTERS, chosen, "curate.filters")()
    return operator


def said(name: str, *given: RawRow, **options: object) -> list[str | None]:
    return judge([(name, made(name, **options))], given)


def pair(chosen: str, rejected: str, prompt: str = "Which is larger?") -> RawRow:
    return RawRow.of(source="test", task="pairs", prompt=prompt, chosen=chosen, rejected=rejected)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_rows_no_answers(name: str) -> None:
    assert said(name) == []


@pytest.mark.parametrize("name", sorted(FILTERS))
@few
@given(given_rows=rows)
def test_any_text_gets_an_answer(name: str, given_rows: list[RawRow]) -> None:
    given_rows = [
        r.model_copy(update={"prompt": r.prompt.replace("\ud800", "")}) for r in given_rows
    ]
    answers = said(name, *given_rows)
    assert len(answers) == len(given_rows)
    assert all(answer is None or answer for answer in answers)


@pytest.mark.parametrize("name", LOCAL)
@few
@given(given_rows=rows)
def test_a_local_operator_looks_at_one_row(name: str, given_rows: list[RawRow]) -> None:
    train = [r.model_copy(update={"split": "train"}) for r in given_rows]
    assert said(name, *train) == [said(name, row)[0] for row in train]
    assert said(name, *reversed(train)) == said(name, *train)[::-1]


@pytest.mark.parametrize("name", sorted(set(FILTERS) - set(LOCAL)))
@few
@given(given_rows=rows, cut=st.integers(0, 6))
def test_a_cut_changes_no_decision(name: str, given_rows: list[RawRow], cut: int) -> None:
    operator = made(name)
    assert remembers(operator)

    def sketches(*parts: list[RawRow]) -> list[Sketch]:
        return [Sketch.of(len(part), operator.sketch(Batch.of(part))) for part in parts]

    whole = [list(each) for each in operator.decide(sketches(given_rows))]
    parts = operator.decide(sketches(given_rows[:cut], given_rows[cut:]))
    assert [answer for part in parts for answer in part] == whole[0]


@given(texts=st.lists(st.text(max_size=30), max_size=5))
def test_words_of_texts_are_those_of_each(texts: list[str]) -> None:
    together, forms = words_of(texts), normal_forms(words_of(texts))
    for at, text in enumerate(texts):
        alone = words_of([text])
        start, end = together.ends[at : at + 2]
        assert together.hashes[start:end].tolist() == alone.hashes.tolist()
        assert forms[at].tolist() == normal_forms(alone)[0].tolist()


def test_words_are_numbers_words_and_operators() -> None:
    same = words_of(["It's 1,200 - 3!", "it s 1200 -3", "IT-S 1200 − 3"])
    assert np.diff(same.ends).tolist() == [5, 5, 4]
    first, second, third = (same.hashes[s:e].tolist() for s, e in pairwise(same.ends))
    assert first == second
    assert third == first[:3] + first[4:]
    assert [each & 1 for each in first] == [0, 0, 1, 0, 1]


def test_shingles_are_words_and_pairs_under_the_numbers() -> None:
    made_, ends = shingles(words_of(["a b c", "a b 1", "a b 2", ""]))
    assert ends.tolist() == [0, 5, 10, 15, 16]
    one, two, three, none = (set(made_[s:e].tolist()) for s, e in pairwise(ends))
    assert [len(each) for each in (one, two, three, none)] == [5, 5, 5, 1]
    assert not one & two
    assert not two & three


def test_runs_stay_within_a_text() -> None:
    words = words_of(["a b c d", "c d", "b c"])
    found, starts = runs(words, 2)
    assert starts.tolist() == [0, 1, 2, 4, 6]
    assert found[2] == found[3]
    assert found[1] == found[4]
    assert len(runs(words, 5)[0]) == 0


def test_signatures_agree_as_much_as_the_shingles() -> None:
    texts = ["a b c d e f g h", "a b c d e f g i", "q r s t u v w x"]
    signatures = sketched(words_of(texts))
    agree = [(signatures[0] == other).mean() for other in signatures]
    # Of 15 shingles each, 13 are shared: Jaccard 13 / 17; one standard error is 0.04.
    assert agree[0] == 1
    assert agree[1] == pytest.approx(13 / 17, abs=0.12)
    assert agree[2] < 0.05
    assert bands(signatures).shape == (3, 32)


def test_a_long_text_has_the_signature_of_its_shingles() -> None:
    long = " ".join(f"w{'abcdefghij'[n % 10]}{'klmnopq'[n % 7]}" for n in range(9000))
    alone = sketched(words_of([long]))
    assert (sketched(words_of(["a", long, "b"]))[1] == alone[0]).all()


@pytest.mark.parametrize(
    ("text", "share"),
    [("a\nb\n\nc", 0.0), ("a\na\n b\nA", 0.25), ("a\na\n a ", 2 / 3), ("", 0.0), ("\n", 0.0)],
)
def test_repeated_lines(text: str, share: float) -> None:
    assert repeated_lines(text) == pytest.approx(share)


def test_ngrams_are_counted_in_characters() -> None:
    words = words_of(["ab c ab c d", "a b c d e", "x x x x"])
    # `ab c` twice, 3 characters each; nothing recurs; `x x` three times, 2 characters each.
    assert top_ngram(words, 2).tolist() == [6, 0, 6]
    # Words inside any bigram that recurs: ab c ab c; none; all four.
    assert duplicate_ngrams(words, 2).tolist() == [6, 0, 4]
    assert duplicate_ngrams(words, 4).tolist() == [0, 0, 0]


def test_contradictions_go_both_ways() -> None:
    assert said("contradiction", pair("A", "B"), pair("B", "A"), pair("A", "C")) == [
        "another pair says the opposite",
        "another pair says the opposite",
        None,
    ]
    asked = [RawRow.of(source="s", task="number", prompt="2 + 2?", answer=a) for a in "454"]
    assert said("contradiction", *asked) == ["another row has another answer"] * 3
    assert said("contradiction", *asked[::2]) == [None, None]


def test_an_id_belongs_to_one_row() -> None:
    one, two = pair("A", "B"), pair("A", "C")
    clash = two.model_copy(update={"id": one.id})
    assert said("repeated_id", one, two, clash, one) == [None, None, "another row has its id", None]


def test_suites_are_searched_for_training_rows() -> None:
    from posttrain.benchmark.suites import SUITES, Place

    leaked = SUITES["countdown"].source.items(Place())[0].prompt
    rows_ = [RawRow.of(source="s", task="text", prompt=text) for text in (leaked.text, "Hello?")]
    assert said("contamination", *rows_, suites=("countdown",)) == ["a prompt of countdown", None]
    assert said("contamination", *rows_) == [None, None]
    with pytest.raises(ConfigError, match="unknown suite `countdwon`"):
        made("contamination", suites=("countdwon",))


def test_vectors_of_like_texts_are_near() -> None:
    one, two, far = char_ngrams(["The cat sat.", "the  CAT sat!", "Numbers: 17"]).astype(float)
    assert one @ one == pytest.approx(1, abs=2e-3)
    assert one @ two > 0.8
    assert abs(one @ far) < 0.3


def test_repeats_compare_with_rows_that_stay() -> None:
    angles = np.deg2rad([0, 20, 40, 90])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    # cos 20 = 0.94: the second goes by the first; the third is 40 from the first, so it stays.
    assert repeats(vectors, 0.9).tolist() == [1]
    assert repeats(vectors, 0.7).tolist() == [1, 2]


def test_the_core_is_spread() -> None:
    angles = np.deg2rad([0, 30, 45, 50, 90])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    # The mean points at 43 degrees: first 45; then 0 and 90, which are 45 away from it.
    assert sorted(spread(vectors, 3).tolist()) == [0, 2, 4]
    assert spread(vectors, 9).tolist() == [0, 1, 2, 3, 4]


def test_semantic_filters_keep_to_their_kind() -> None:
    rows_ = [pair("A", "B"), pair("A", "C"), pair("A", "B", "What else, if anything, is small?")]
    assert said("semantic_duplicate", *rows_) == [None, "means the same as an earlier row", None]
    assert said("k_center", *rows_, k=2).count("near a kept row") == 1
    assert said("k_center", *rows_, k=1, kind="prompts") == [None] * 3


def test_a_sentence_encoder_may_be_used(tmp_path: Path, tiny_policy: Path) -> None:
    """A random model of the tests stands for the encoder: only the same text is the same to it."""
    rows_ = [pair("A", "B"), pair("1, 2, 3", "C", "Count!"), pair("A", "D")]
    found = said("semantic_duplicate", *rows_, encoder=str(tiny_policy), threshold=0.999)
    assert found == [None, None, "means the same as an earlier row"]
    with pytest.raises(ConfigError, match="no encoder"):
        said("semantic_duplicate", pair("A", "B"), encoder=f"{tmp_path}/none")


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")
def test_known_facts_of_real_files_are_found() -> None:
    """Six identical pairs and 177 repeated prompts, as the files' own account says; and what no
    account says: two MAWPS problems that stand there with two answers each."""
    folder = DATA / "llms_from_scratch_sft"
    pairs = json.loads((folder / "instruction-data-with-preference.json").read_bytes())
    rows_ = [pair(each["chosen"], each["rejected"], each["instruction"]) for each in pairs]
    assert said("identical_pair", *rows_).count("identical pair") == 6
    both = [
        [f"{each['instruction']} {each['input']}" for each in json.loads(file.read_bytes())]
        for file in (folder / "instruction-data.json", folder / "instruction-examples.json")
    ]
    asked = [RawRow.of(source="s", task="t", prompt=text) for texts in both for text in texts]
    assert said("exact_duplicate", *asked)[len(both[0]) :].count("exact duplicate") >= 177
    problems = math_files(0, folder=str(DATA), sets=("mawps", "svamp"))
    sums = [row for row in problems if isinstance(row, RawRow)]
    assert said("contradiction", *sums).count("another row has another answer") == 4
    assert said("language", *sums) == [None] * len(sums)
    people = [r for r in preference_files(0, folder=str(DATA)) if isinstance(r, RawRow)]
    assert said("agreement", *people).count("too few annotators agree") == 62


def test_a_function_of_a_row_is_adapted() -> None:
    def shouting(row: RawRow) -> str | None:
        return "shouting" if row.prompt.isupper() else None

    def operator(batch: Batch, /) -> Reasons:
        return by_row(batch, shouting)

    rows_ = [RawRow.of(source="s", task="text", prompt=text) for text in ("Why?", "WHY?")]
    assert judge([("shouting", operator)], rows_) == [None, "shouting"]
