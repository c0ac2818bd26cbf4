"""One sample: by the accuracies it had, and by the skills it asks for."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import Manifest, read_rows, write_json, write_rows
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.plugins import Plugin
from posttrain.raw.sources.math_files import math_files
from posttrain.raw.sources.multi_skill import FIRST, multi_skill
from posttrain.records import Prompt, RawRow, Sample
from posttrain.rewards.verifiers import verify
from posttrain.select.histories import absent, scores
from posttrain.select.measures import Measured
from posttrain.select.selectors.history import epoch_means, lim_score
from posttrain.select.selectors.salient_skills import skills_of
from posttrain.select.stage import SelectConfig, SelectReport, preflight, run, still_holds
from posttrain.tasks import BANDS, TASKS, generate_many
from posttrain.tasks.mistakes import parse

Seal = Callable[[Path, str], Manifest]

DATA = Path(os.environ.get("POSTTRAIN_DATA", "../shared/data"))
HISTORIES = {"a": [0.0, 1.0, 1.0], "b": [0.5, 0.5, 0.5], "c": [0.0, 0.0, 0.75], "d": [0.25, 0.25]}


def prompt(i: str, text: str = "?", difficulty: int | None = None) -> Prompt:
    return Prompt(id=i, text=text, answer="1", task="math", source="s", difficulty=difficulty)


def select(folder: Path, rows: list[Prompt], seal: Seal, **options: Any) -> SelectReport:
    write_rows(folder / "in", rows)
    seal(folder / "in", "Prompt")
    return run(
        SelectConfig.model_validate(options),
        curated=folder / "in",
        selected=folder / "out",
        journal=Journal(folder / "journal"),
    )


def chosen(folder: Path) -> list[str]:
    return [row.id for row in read_rows(folder / "out", Prompt)]


def history(folder: Path) -> dict[str, str]:
    write_json(folder / "histories.json", HISTORIES)
    return {"name": "file", "path": str(folder / "histories.json")}


def test_lim_score_by_hand() -> None:
    """Means .2, .5, .8 and a row 0, 1, 1: 1 - .33 / .93 = .6452."""
    assert lim_score([0, 1, 1], [0.2, 0.5, 0.8]) == pytest.approx(0.6452, abs=1e-4)
    assert lim_score([1, 1], [1, 1]) == 1
    assert lim_score([0, 1], [1, 1]) == 0
    assert epoch_means([[0.0, 1.0, 1.0], [1.0]]) == [0.5, 1.0, 1.0]


def test_variance_ranks_rows_by_their_history(tmp_path: Path, seal: Seal) -> None:
    """Standard deviations: a .4714, b 0, c .3536, d 0, the tie by the record; e has no history."""
    rows = [prompt(i) for i in "edcba"]
    options = {"history": history(tmp_path), "selectors": ["historical_variance"]}
    report = select(tmp_path, rows, seal, **options)
    assert chosen(tmp_path) == ["a"]
    assert report.measures["history_std"] == pytest.approx((0.4714 + 0.3536) / 4, abs=1e-4)
    written = {r.id: r.measures for r in read_rows(tmp_path / "out", Measured, "measures.jsonl")}
    assert written["c"] == {"history_std": 0.353553}
    assert set(written) == set("abcd")
    second = {"name": "historical_variance", "rank": 2, "n": 2}
    select(tmp_path, rows, seal, **options | {"selectors": [second]})
    assert chosen(tmp_path) == ["c", "b"]


def test_lim_takes_the_best_or_the_nearest(tmp_path: Path, seal: Seal) -> None:
    rows = [prompt(i) for i in "abc"]
    given = history(tmp_path)
    select(tmp_path, rows, seal, history=given, selectors=["lim"])
    means = epoch_means([HISTORIES[i] for i in "abc"])
    by_hand = {i: lim_score(HISTORIES[i], means) for i in "abc"}
    assert chosen(tmp_path) == [max(by_hand, key=by_hand.__getitem__)]
    nearest = {"name": "lim", "target": by_hand["c"]}
    select(tmp_path, rows, seal, history=given, selectors=[nearest])
    assert chosen(tmp_path) == ["c"]


def test_skills_count_first_then_lim_then_difficulty(tmp_path: Path, seal: Seal) -> None:
    plain = prompt("a", "Ann has 3 pens. She gets 1 from Ben. In the evening 2 more arrive.", 4)
    rich = prompt("b", "Ann buys 3 boxes of 4 pens. She loses 2. Then she gives away half.", 3)
    rows = [plain, rich, prompt("c", rich.text, 4)]
    select(tmp_path, rows, seal, selectors=["salient_skills"])
    assert chosen(tmp_path) == ["c"]
    assert skills_of(rich.text) == {"multiplication", "subtraction", "division"}
    select(tmp_path, rows, seal, selectors=["salient_skills"], history=history(tmp_path))
    means = epoch_means([HISTORIES[i] for i in "abc"])
    away = {i: abs(lim_score(HISTORIES[i], means) - 0.6) for i in "bc"}
    assert chosen(tmp_path) == [min(away, key=away.__getitem__)]


def test_the_spectrum_names_the_operations_of_generated_problems() -> None:
    """What a solution does is known of every generated problem: none missed, none invented."""
    names = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}
    for problem in generate_many(TASKS["arithmetic"], 300, dict.fromkeys(BANDS, 1.0), "train", 3):
        wanted = {names[step.op] for step in parse(problem.solution)}
        assert skills_of(problem.text) - {"relevance"} == wanted, problem.text


def test_our_own_sample_asks_for_several_subjects() -> None:
    """(12 + 12) bonds x 4.0e-20 J over h c / 414 nm = 2.0007 photons."""
    assert pytest.approx(2.0007, abs=1e-4) == FIRST.photons
    rows = [row for row in multi_skill(0, n=5) if isinstance(row, RawRow)]
    assert rows[0].answer == "2"
    assert verify("number", rows[0].prompt, "2", "so #### 2")
    assert {"biology", "chemistry", "physics", "multiplication"} <= skills_of(rows[0].prompt)
    assert len({row.prompt for row in rows}) == 5


def test_histories_of_our_own_checkpoints(tmp_path: Path) -> None:
    def sample(item: str, index: int, correct: float) -> Sample:
        texts = {"prompt": "?", "answer": "1", "response": "1"}
        return Sample(
            suite="s",
            item_id=item,
            index=index,
            correct=correct,
            tokens=1,
            truncated=False,
            **texts,
        )

    for step, correct in enumerate((0.0, 1.0)):
        rows = [sample("a", 0, correct), sample("a", 1, 1.0), sample("b", 0, 0.0)]
        write_rows(tmp_path / str(step), rows)
    folders = (str(tmp_path / "0"), str(tmp_path / "1"))
    assert scores(folders=folders) == {"a": [0.5, 1.0], "b": [0.0, 0.0]}


@pytest.mark.parametrize("content", ["[1]", '{"a": []}', '{"a": [2]}', '{"a": ["x"]}', "{", "{}"])
def test_a_bad_history_is_told(tmp_path: Path, seal: Seal, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    given = {"name": "file", "path": str(path)}
    with pytest.raises(DataError, match=r"histor|JSON"):
        select(tmp_path, [prompt("a")], seal, history=given, selectors=["lim"])


def test_a_history_is_an_input(tmp_path: Path, seal: Seal) -> None:
    given = history(tmp_path)
    config = SelectConfig.model_validate({"history": given})
    assert list(preflight(config)) == []
    select(tmp_path, [prompt("a")], seal, history=given, selectors=["lim"])
    assert still_holds({"selected": tmp_path / "out"}, config) is None
    write_json(tmp_path / "histories.json", {"a": [1.0]})
    assert still_holds({"selected": tmp_path / "out"}, config) == "the history has changed"
    gone = Plugin(name="file", options={"path": "absent.json"})
    assert [fault.where for fault in absent(gone)] == ["absent.json"]


@pytest.mark.realdata
@pytest.mark.skipif(not (DATA / "one_shot_rlvr").is_dir(), reason="POSTTRAIN_DATA has no histories")
def test_the_known_ranks_of_one_shot_rlvr(tmp_path: Path, seal: Seal) -> None:
    """pi1, pi2, pi13 and pi1209 of the published histories are found at their ranks."""
    lines = (DATA / "one_shot_rlvr/one_shot_samples.jsonl").read_text().splitlines()
    known = {row["sample"]: row["prompt"][0]["content"].strip() for row in map(json.loads, lines)}
    raw = math_files(0, folder=str(DATA), sets=("one_shot_rlvr",))
    texts = dict.fromkeys(row.prompt for row in raw if isinstance(row, RawRow))
    rows = [prompt(str(at), text) for at, text in enumerate(texts)]
    given = {"name": "one_shot_rlvr", "folder": str(DATA)}
    everything = {"name": "historical_variance", "n": len(rows)}
    select(tmp_path, rows, seal, history=given, selectors=[everything])
    ranked = [row.text for row in read_rows(tmp_path / "out", Prompt)]
    ranks = {name: ranked.index(text) + 1 for name, text in known.items()}
    # Two of the 1,209 entries repeat a prompt, so the last rank of distinct prompts is 1207.
    assert ranks == {"pi1": 1, "pi2": 2, "pi13": 13, "pi1209": 1207}
