"""The reject stage: every sample accounted for, the same whichever chunk it resumed from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import content_files, read_rows, write_json, write_rows
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal, read_curves
from posttrain.plugins import Plugin, build
from posttrain.records import Demonstration, Prompt, content_id
from posttrain.reject.selectors import SELECTORS, Candidate, best, distance, diverse, top_k
from posttrain.reject.sift import Drawn, first_fates, sift
from posttrain.reject.stage import RejectConfig, kept_rows, report, run

SMALL = {"samples": 3, "max_new_tokens": 6, "chunk": 2, "temperature": 1.0}


def prompt(number: int) -> Prompt:
    text = f"What is {number} + 1?"
    return Prompt(
        id=content_id("number", text),
        text=text,
        answer=str(number + 1),
        task="number",
        source="test",
        difficulty=1 + number % 2,
    )


@pytest.fixture
def prompts(tmp_path: Path, seal: Callable[..., object]) -> Path:
    folder = tmp_path / "prompts"
    write_rows(folder, (prompt(number) for number in range(5)))
    seal(folder, "Prompt")
    return folder


class KilledAt(Journal):
    """A journal that dies after the second chunk, as a preempted pod does."""

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        if done == 4:
            raise KeyboardInterrupt


class ByLength:
    """A judge that likes short responses."""

    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        return [-float(len(response)) for response in responses]


def test_every_sample_is_kept_or_dropped_for_a_reason(
    tiny_policy: Path, prompts: Path, tmp_path: Path, journal: Journal
) -> None:
    found = run(
        RejectConfig(**SMALL),
        policy=tiny_policy,
        prompts=prompts,
        demonstrations=tmp_path / "out",
        journal=journal,
    )
    assert found.samples == 15
    assert found.samples == found.kept + sum(found.dropped.values())
    assert found.kept == len(list(read_rows(tmp_path / "out", Demonstration)))
    assert {point.step for point in read_curves(journal.curves)} == {0, 1, 2}


def test_a_killed_run_draws_the_same_and_repeats_one_chunk_at_most(
    tiny_policy: Path, prompts: Path, tmp_path: Path, judge: Path
) -> None:
    config = RejectConfig(verifier=False, selector=Plugin(name="best"), **SMALL)
    ports = {"policy": tiny_policy, "prompts": prompts, "judge": judge}
    whole = run(config, **ports, demonstrations=tmp_path / "a", journal=Journal(tmp_path / "ja"))
    scratch = tmp_path / "jb/scratch"
    with pytest.raises(KeyboardInterrupt):
        run(config, **ports, demonstrations=tmp_path / "b", journal=KilledAt(tmp_path / "jb"))
    before = {path.name: path.stat().st_mtime_ns for path in scratch.iterdir()}
    assert sorted(before) == ["chunk-00000.json", "chunk-00001.json"]
    again = run(config, **ports, demonstrations=tmp_path / "b", journal=Journal(tmp_path / "jb"))
    assert again == whole
    assert content_files(tmp_path / "b") == content_files(tmp_path / "a")
    assert all((scratch / name).stat().st_mtime_ns == time for name, time in before.items())


def test_a_chunk_of_other_prompts_is_not_taken(
    tiny_policy: Path, prompts: Path, tmp_path: Path, journal: Journal
) -> None:
    ports = {"policy": tiny_policy, "prompts": prompts}
    config = RejectConfig(**SMALL)
    whole = run(config, **ports, demonstrations=tmp_path / "a", journal=Journal(tmp_path / "j"))
    path = journal.scratch / "chunk-00000.json"
    write_json(path, {"ids": ["other"], "drawn": [[["#### 1", 2, False]]]})
    assert whole == run(config, **ports, demonstrations=tmp_path / "b", journal=journal)
    assert json.loads(path.read_text())["ids"] == [prompt(0).id, prompt(1).id]


@pytest.fixture
def judge(tiny_policy: Path, tmp_path: Path) -> Path:
    """An untrained judge whose panel says it passed."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

    from posttrain.reward_model.panel import Invariance, ScoredPair, Thresholds, judge_the_judge

    folder = tmp_path / "judge"
    set_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_policy).save_pretrained(folder)
    pair = ScoredPair(source="s", chosen=9, rejected=0, chosen_length=1, rejected_length=1)
    steady = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    panel = judge_the_judge([pair], steady, Thresholds())
    write_json(folder / "panel.json", panel.model_dump(mode="json"))
    return folder


def test_fates_and_report_of_known_samples() -> None:
    drawn = [
        Drawn("so\n#### 2", 5, False),
        Drawn("so \n#### 2", 5, False),
        Drawn("#### 3", 3, False),
        Drawn("#### 2 and on", 9, True),
        Drawn("surely\n#### 2", 6, False),
    ]
    selector = build(SELECTORS, Plugin(name="best"))
    sifted = sift([prompt(1)], [drawn], selector, ByLength(), verifier=True)  # type: ignore[arg-type]
    assert sifted[0].fates == ["kept", "duplicate", "wrong", "wrong", "not_selected"]
    found = report(sifted)
    assert found.dropped == {"duplicate": 1, "not_selected": 1, "wrong": 2}
    assert found.pass_rate == pytest.approx(3 / 5)
    assert found.solved == 1.0
    assert found.pass_rate_by_difficulty == {"2": pytest.approx(3 / 5)}
    assert found.truncated == pytest.approx(1 / 5)
    assert found.mean_tokens == pytest.approx(28 / 5)
    assert found.judge_mean_kept == -9.0
    (row,) = kept_rows(sifted)
    assert (row.reward, row.prompt_id, row.response) == (1.0, prompt(1).id, "so\n#### 2")


def test_without_a_verifier_the_judges_chance_is_the_reward() -> None:
    drawn = [Drawn("", 1, False), Drawn("x", 2, False), Drawn("y", 2, True)]
    selector = build(SELECTORS, Plugin(name="all_correct"))
    sifted = sift([prompt(1)], [drawn], selector, ByLength(), verifier=False)  # type: ignore[arg-type]
    assert sifted[0].fates == ["empty", "kept", "truncated"]
    (row,) = kept_rows(sifted)
    assert row.reward == pytest.approx(0.2689414)
    assert report(sifted).pass_rate is None


def test_of_equal_texts_the_first_survives() -> None:
    drawn = [Drawn(text, 1, False) for text in ("a b", "a  b", "c")]
    assert first_fates(drawn, [None] * 3) == ["kept", "duplicate", "kept"]


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_selector_keeps_places_of_its_candidates_each_once(name: str, count: int) -> None:
    selector = build(SELECTORS, Plugin(name=name))
    candidates = [Candidate(f"text {i} {i % 2}", True, float(-i)) for i in range(count)]
    kept = selector(candidates)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(range(count))
    assert bool(kept) == bool(count)
    assert kept == selector(candidates)


def test_selectors_by_hand() -> None:
    candidates = [
        Candidate("a b c", True, 0.0),
        Candidate("a b c d", True, 2.0),
        Candidate("x y", True, 1.0),
        Candidate("a b", True, 1.0),
    ]
    assert best(candidates) == [1]
    assert top_k(candidates, k=2) == [1, 2]
    # from "a b c d": "x y" is at 1, "a b" at 0.5, "a b c" at 0.25
    assert diverse(candidates, k=2) == [1, 2]
    assert diverse(candidates, k=3) == [1, 2, 3]
    assert diverse([c._replace(judge=None) for c in candidates], k=1) == [0]
    assert distance(frozenset("ab"), frozenset("bc")) == pytest.approx(2 / 3)
    assert build(SELECTORS, Plugin(name="all_correct", options={"most": 2}))(candidates) == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selector": "best"}, "needs a judge"),
        ({"selector": "top_k"}, "needs a judge"),
        ({"verifier": False}, "neither verifier nor judge"),
        ({"selector": "bestt"}, "unknown plug-in"),
        ({"selector": {"name": "diverse", "k": 0}}, "bad value for `k`"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_loads(
    options: dict[str, object], message: str, tmp_path: Path, journal: Journal
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(
            RejectConfig.model_validate(options),
            policy=tmp_path / "not there",
            prompts=tmp_path / "not there",
            demonstrations=tmp_path / "out",
            journal=journal,
        )


def test_no_prompts_is_a_data_error(tiny_policy: Path, tmp_path: Path, journal: Journal) -> None:
    write_rows(tmp_path / "none", [])
    with pytest.raises(DataError, match="no prompts"):
        run(
            RejectConfig(),
            policy=tiny_policy,
            prompts=tmp_path / "none",
            demonstrations=tmp_path / "out",
            journal=journal,
        )


def test_max_prompts_draws_some_in_their_order(
    tiny_policy: Path, prompts: Path, tmp_path: Path, journal: Journal
) -> None:
    config = RejectConfig(max_prompts=2, **SMALL)
    found = run(
        config,
        policy=tiny_policy,
        prompts=prompts,
        demonstrations=tmp_path / "out",
        journal=journal,
    )
    assert found.prompts == 2
