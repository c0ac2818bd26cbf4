"""The pretraining corpus: train split only, no chat format, mistakes in their share."""

import itertools
import random

from posttrain.base.corpus import Mix, documents
from posttrain.base.pretrain import batches, build_tokenizer, rate
from posttrain.tasks import split_of
from posttrain.tasks.mistakes import Step, step


def test_no_evaluation_problem_is_in_the_corpus() -> None:
    for given, _ in itertools.islice(documents(random.Random(0)), 2000):
        text = given.removeprefix("Problem: ").removeprefix("Question: ")
        text = text.removeprefix("Exercise. ").split("\n")[0]
        assert not text or split_of(text) == "train"


def test_the_corpus_knows_no_chat() -> None:
    assert not any(
        "<|" in given + rest for given, rest in itertools.islice(documents(random.Random(1)), 2000)
    )


def test_documents_are_deterministic_and_the_mix_is_a_choice() -> None:
    def drawn(mix: Mix) -> list[tuple[str, str]]:
        return list(itertools.islice(documents(random.Random(2), mix), 50))

    assert drawn(Mix()) == drawn(Mix())
    drills = drawn(Mix(arithmetic=0.0, knights_knaves=0.0, countdown=0.0, checked=0.0))
    assert all(rest.count("\n") == 7 for _, rest in drills)


def test_the_note_of_a_checked_drill_is_true() -> None:
    mix = Mix(arithmetic=0.0, knights_knaves=0.0, countdown=0.0, checked=1.0)
    for _, rest in itertools.islice(documents(random.Random(3), mix), 300):
        *lines, note = rest.split("\n")
        right = all(
            str(equation) == line for line, equation in zip(lines, map(redone, lines), strict=True)
        )
        assert note == f"Checked: {'right' if right else 'wrong'}"


def redone(line: str) -> Step:
    left, op, right, _, _ = line.split(" ")
    return step(int(left), op, int(right))


def test_a_batch_ends_each_document_and_weighs_its_working() -> None:
    tokenizer = build_tokenizer(0)
    ids_DT, weights_DT = next(batches(tokenizer, 0))
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert ((ids_DT == end).sum(dim=1) == 1).all()
    assert (weights_DT[ids_DT == end] == 1).all()
    assert (weights_DT[ids_DT == tokenizer.pad_token_id] == 0).all()
    assert (weights_DT > 0).float().mean() > 0.9


def test_the_rate_warms_up_and_ends_low() -> None:
    assert rate(0, 1000) < 0.05
    assert rate(300, 1000) == 1.0
    assert rate(999, 1000) == 0.02


def test_the_mark_of_every_line_is_true() -> None:
    mix = Mix(arithmetic=0.0, knights_knaves=0.0, countdown=0.0, marked=1.0)
    marks = []
    for _, rest in itertools.islice(documents(random.Random(4), mix), 200):
        for line in rest.split("\n"):
            equation, _, mark = line.rpartition(" ")
            assert mark == ("right" if str(redone(equation)) == equation else "wrong")
            marks.append(mark)
    assert 0.4 < marks.count("right") / len(marks) < 0.6


def test_a_marked_solution_is_right_until_its_first_mistake() -> None:
    mix = Mix(arithmetic=1.0, knights_knaves=0.0, countdown=0.0, marked=1.0)
    for _, rest in itertools.islice(documents(random.Random(5), mix), 200):
        marks = [line.rpartition(" ")[2] for line in rest.split("\n")]
        assert marks == sorted(marks)
