"""A judge that fails, on one answer, on all or for good: counted, and the run goes on."""

import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.best_of_n.conftest import Seal, go, samples

from posttrain.artifacts import read_rows, write_rows
from posttrain.best_of_n.drawing import PATIENCE, asked, judged
from posttrain.errors import TransientError
from posttrain.interruption import PREEMPTED, ask, at_work, listening
from posttrain.records import Sample
from posttrain.reward_model.loading import load_judge


class Away:
    """A client of a server that is not there."""

    def __init__(self) -> None:
        self.requests = 0

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        self.requests += 1
        urllib.request.urlopen("http://127.0.0.1:9/score", timeout=1).close()
        return []


class Particular:
    """Scores by length, but not the word `boom`."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        if "boom" in responses:
            raise RuntimeError("boom")
        return [float(len(response)) for response in responses]


class Preempted:
    """The machine is taken away in the middle of a request."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        ask(PREEMPTED)
        raise PREEMPTED


def said(*texts: str) -> list[Sample]:
    [row] = samples([[1]])
    return [row.model_copy(update={"response": text, "index": i}) for i, text in enumerate(texts)]


def test_a_judge_away_is_asked_a_few_times_and_counted() -> None:
    judge = Away()
    rows, counts = judged(judge, said(*"abcdefghijkl"), 100)
    assert judge.requests == 1 + PATIENCE
    assert counts["judge_failed"] == 12
    assert {row.judge for row in rows} == {None}


def test_one_bad_answer_costs_its_own_score_alone() -> None:
    rows, counts = judged(Particular(), said("a", "boom", "ccc", "x" * 101), 100)
    assert [row.judge for row in rows] == [1.0, None, 3.0, None]
    assert counts["judge_failed"] == 1


def test_being_preempted_is_no_failure_of_the_judge() -> None:
    with listening(), at_work(), pytest.raises(TransientError, match="preempted"):
        asked(Preempted(), said("a"))


@pytest.fixture(scope="module")
def hoarse(judge: Path, seal: Seal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny judge with a token that its embedding does not have: it raises on the word."""
    folder = tmp_path_factory.mktemp("hoarse") / "judge"
    shutil.copytree(judge, folder)
    loaded = load_judge(folder)
    loaded.tokenizer.add_tokens(["boom"])
    loaded.tokenizer.save_pretrained(folder)
    seal(folder, "judge")
    return folder


def test_a_judge_that_raises_on_an_answer(hoarse: Path, tmp_path: Path) -> None:
    """Through the stage: of six recorded answers one cannot be scored, and it is never chosen."""
    rows = samples([[1, 0, 0], [1, 0, 0]])
    texts = ["boom", "b", "c", "d", "e", "f"]
    given = [r.model_copy(update={"response": t}) for r, t in zip(rows, texts, strict=True)]
    write_rows(tmp_path / "candidates", given)
    report = go(tmp_path, "scores", None, None, candidates=tmp_path / "candidates", judge=hoarse)
    found = [row.judge for row in read_rows(tmp_path / "scores", Sample)]
    assert [score is None for score in found] == [True, False, False, False, False, False]
    assert report.outcomes["judge_failed"] == 1
    assert report.curve[0]["judge"] == pytest.approx((0 / 3 + 1 / 3) / 2)


def test_a_judge_of_nothing_but_nan(
    tiny_policy: Path, judge: Path, evaluation: Path, seal: Seal, tmp_path: Path
) -> None:
    """Its scores are counted, its selectors left out; the rest of the report stands."""
    import torch

    folder = tmp_path / "nan"
    shutil.copytree(judge, folder)
    loaded = load_judge(folder)
    with torch.no_grad():
        for weights in loaded.model.parameters():
            weights.fill_(float("nan"))
    loaded.model.save_pretrained(folder)
    seal(folder, "judge")
    report = go(tmp_path, "scores", tiny_policy, evaluation, judge=folder)
    assert report.outcomes["judge_not_finite"] == report.samples == 20
    assert report.lacking == ["judge", "weighted_majority"]
    assert set(report.gains) == {"pass", "majority", "self_certainty"}
    assert report.judge_accuracy is None
