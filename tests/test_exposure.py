"""Exposure: what an artifact's data were checked against, along the graph."""

from pathlib import Path

import pytest

from posttrain.artifacts import Manifest
from posttrain.exposure import EVALUATION, GENERATED, Exposure, behind, standing


def manifest(exposure: Exposure | None, task: str = "curate", files: int = 1) -> Manifest:
    return Manifest(
        record="Prompt",
        rows=1,
        digest="0",
        files={f"rows{i}": "0" for i in range(files)},
        stage=task,
        task=task,
        port="prompts",
        config={},
        seed=0,
        inputs={},
        report={},
        exposure=exposure,
    )


def told(*checked: str, unknown: tuple[str, ...] = ()) -> Exposure:
    return Exposure(checked=checked, unknown=unknown)


def test_a_test_counts_as_checked_if_all_data_were() -> None:
    one, two = manifest(told("evaluation@1", "svamp@2")), manifest(told("svamp@2", "gsm8k@3"))
    embedded, outside = manifest(Exposure()), manifest(None, "base")
    assert behind({"rows": []}) is None
    assert behind({"a": [one], "b": [two]}) == told("svamp@2")
    assert behind({"policy": [embedded], "a": [one]}) == told("evaluation@1", "svamp@2")
    assert behind({"policy": [embedded]}) == Exposure()
    assert behind({"policy": [outside], "a": [one]}) == told(
        "evaluation@1", "svamp@2", unknown=("base",)
    )
    assert behind({"policy": [outside]}) == Exposure(unknown=("base",))
    assert behind({"a": [one], "judge": [manifest(None, "judge", files=0)]}) == one.exposure


def test_evaluation_rows_count_if_they_are_those_checked_against() -> None:
    policy, other = manifest(told("evaluation@1", "svamp@2")), manifest(told("evaluation@9"))
    assert behind({"policy": [policy], "evaluation": [policy]}) == policy.exposure
    assert behind({"policy": [policy], "evaluation": [other]}) == told("svamp@2")
    assert behind({"policy": [policy], "evaluation": [manifest(None)]}) == told("svamp@2")


@pytest.mark.parametrize(
    ("origin", "policy", "scores", "expected"),
    [
        ("svamp@2", told("svamp@2"), None, "checked"),
        ("svamp@2", told("svamp@2", unknown=("base",)), None, "unknown"),
        ("svamp@2", told("svamp@1"), None, "unchecked"),
        ("svamp@2", told(unknown=("base",)), None, "unchecked"),
        ("svamp@2", Exposure(unknown=("base",)), None, "unknown"),
        ("svamp@2", Exposure(), None, "held out"),
        ("svamp@2", None, None, "unknown"),
        (None, told("svamp@2"), None, "unknown"),
        (GENERATED, told(), None, "held out"),
        (EVALUATION, told("evaluation@1"), told("evaluation@1"), "checked"),
        (EVALUATION, told("evaluation@1"), told("svamp@2"), "unchecked"),
        (EVALUATION, told(), None, "unchecked"),
    ],
)
def test_how_data_stand_to_a_suite(
    origin: str | None, policy: Exposure | None, scores: Exposure | None, expected: str
) -> None:
    assert standing(origin, policy, scores) == expected


def test_suites_say_where_their_items_come_from(tmp_path: Path) -> None:
    from posttrain.artifacts import write_rows
    from posttrain.benchmark.choosing import chosen, origin_of
    from posttrain.benchmark.suites import Place
    from posttrain.plugins import Plugin
    from posttrain.records import Prompt

    (tmp_path / "svamp").mkdir()
    (tmp_path / "svamp/test.jsonl").write_text(
        '{"ID": "1", "Body": "Ann has 2 pens.", "Question": "How many?", "Answer": 2.0}\n'
        '{"ID": "2", "Body": "Ben has 3 pens.", "Question": "How many?", "Answer": 3.0}\n'
    )
    own = Prompt(id="a", text="1 + 1?", answer="2", task="arithmetic", source="t")
    write_rows(tmp_path / "own", [own])
    suites = ({"name": "svamp", "limit": 1}, "svamp", "arithmetic", "countdown", "held_out")
    whole, place = Place(None, str(tmp_path)), Place(tmp_path / "own", str(tmp_path))
    part, svamp, arithmetic, countdown, held = (
        chosen([Plugin.model_validate(suite)])[0] for suite in suites
    )
    assert origin_of(part, place) == origin_of(svamp, whole)
    assert origin_of(part, place).startswith("svamp@")
    assert [origin_of(suite, place) for suite in (arithmetic, countdown, held)] == [
        EVALUATION,
        GENERATED,
        EVALUATION,
    ]
    assert origin_of(arithmetic, whole) == GENERATED
