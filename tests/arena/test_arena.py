"""Methods meet under one budget: cells through the store, a table with intervals, its pages."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from posttrain.arena.cells import Cell, cells, request, shared, tasks_of
from posttrain.arena.config import Arena, read_arena
from posttrain.arena.page import markdown, render
from posttrain.arena.table import (
    Gain,
    Played,
    Row,
    correctness,
    last_over_first,
    modes,
    reach,
    rows,
)
from posttrain.cli import main
from posttrain.errors import ConfigError

SMALL = {
    "recipe": "smoke",
    "methods": ["grpo", "rloo"],
    "grounds": {"arithmetic": {"suite": "arithmetic"}},
    "seeds": [0],
    "rollouts": 24,
    "options": {
        "sft": {"max_steps": 1},
        "rl": {"group_size": 4, "prompts_per_step": 3, "max_new_tokens": 8, "kl_coefficient": 0},
        "benchmark": {"suites": [{"name": "arithmetic", "limit": 20}], "max_new_tokens": 8},
    },
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: object) -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(SMALL | changes))
        return path

    return write


def test_a_small_arena_from_its_file_to_its_pages(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    path, out = written(), tmp_path / "out"
    command = ["arena", str(path), "--out", str(out), "--store", str(tmp_path / "store")]
    assert main([*command, "--workers", "1", "--tracking", "off"]) == 0
    found = rows(read_arena(path), out)
    assert sorted(row.method for row in found) == ["grpo", "rloo"]
    start = correctness(out / "arithmetic/start/benchmark_sft/scores")
    for row in found:
        scores = correctness(out / f"arithmetic/{row.method}/0/benchmark_rl/scores")
        assert row.pass_at_1 == pytest.approx(fmean(scores.values()))
        expected = fmean(scores[item] - start[item] for item in scores)
        assert row.over_start.value == pytest.approx(expected)
        assert row.rollouts == 24
        assert (row.over_baseline is None) == (row.method == "grpo")
    assert json.loads((out / "arena.json").read_text())["rows"]
    again = json.loads((out / "arithmetic/rloo/0/stages/rl.json").read_text())
    assert again["config"]["method"] == "rloo"
    assert main([*command, "--workers", "1", "--tracking", "off"]) == 0
    assert json.loads((out / "arithmetic/rloo/0/stages/rl.json").read_text())["cached"]


def test_cells_go_seed_by_seed(written: Callable[..., Path]) -> None:
    arena = read_arena(written(seeds=[3, 1]))
    assert cells(arena) == [
        Cell("arithmetic", "grpo", 3),
        Cell("arithmetic", "rloo", 3),
        Cell("arithmetic", "grpo", 1),
        Cell("arithmetic", "rloo", 1),
    ]


TAUGHT = {
    "suite": "arithmetic",
    "teacher": {"raw": {"sources": [{"name": "procedural", "demonstrations": 30}]}},
}


def test_who_meets_where_and_what_they_are_shown(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    grounds = {"one": {"suite": "bugfix", "only": ["grpo"]}, "two": TAUGHT | {"without": ["rloo"]}}
    arena = read_arena(written(methods=["grpo", "rloo", "dapo"], grounds=grounds))
    assert [(cell.ground, cell.method) for cell in cells(arena)] == [
        ("one", "grpo"),
        ("two", "grpo"),
        ("two", "dapo"),
    ]
    assert [cell.folder for cell in shared(arena)] == ["one/start", "two/start", "two/teacher"]
    assert tasks_of(arena, Cell("two", teacher=True)) == ["raw", "curate"]
    assert "reject" in tasks_of(arena, Cell("one"))
    assert "reject" not in tasks_of(arena, Cell("two"))
    for ground, made_by in (("one", "start/reject"), ("two", "teacher/curate")):
        inputs = request(arena, Cell(ground, "grpo"), "rl", tmp_path, tmp_path).inputs
        assert inputs["demonstrations"] == tmp_path / ground / made_by / "demonstrations"
        assert inputs["prompts"] == tmp_path / ground / "start/curate/prompts"
    config = request(arena, Cell("two", teacher=True), "raw", tmp_path, tmp_path).config
    assert config.sources[0].options["demonstrations"] == 30  # type: ignore[attr-defined]


def test_a_teacher_solves_the_prompts_of_the_run(tmp_path: Path) -> None:
    """As the arena of this repository has it: the problems that the recipe draws, all of them."""
    arena = read_arena(Path(__file__).parents[2] / "pipelines/arenas/methods.yaml")
    for ground in ("arithmetic", "knights_knaves"):
        drawn = []
        for cell in (Cell(ground), Cell(ground, teacher=True)):
            (source,) = request(arena, cell, "raw", tmp_path, tmp_path).config.sources  # type: ignore[attr-defined]
            kinds = ("demonstrations", "preferences", "prompts")
            drawn.append((sum(source.options.get(kind, 0) for kind in kinds), source.options))
        (start, given), (teacher, told) = drawn
        assert start == teacher == told["demonstrations"]
        assert all(given.get(key) == told.get(key) for key in ("task", "difficulty", "part"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grounds": {"one": {"suite": "bugfix", "only": ["dapo", "grpo"]}}}, "names .'dapo'."),
        ({"grounds": {"one": {"suite": "bugfix", "without": ["grpo"]}}}, "does not meet on `one`"),
        ({"grounds": {"one": TAUGHT | {"teacher": {"roar": {}}}}}, "no such task"),
        ({"methods": ["grpo", "dapoo"]}, "did you mean `dapo`"),
        ({"baseline": "ppo"}, "not among the methods"),
        ({"seconds": 3.0}, "one budget"),
        ({"rollouts": 0}, "one budget"),
        ({"seeds": [1, 1]}, "twice"),
        ({"options": {"rll": {}}}, "no such task"),
        ({"grond": {}}, "grond"),
    ],
)
def test_a_mistake_in_the_file_is_told_before_any_work(
    written: Callable[..., Path], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_arena(written(**changes))


def test_options_that_do_not_go_together_are_told_before_any_work(
    written: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(methods={"grpo": {}, "rloo": {"loss": {"name": "clip", "clip_hi": 1}}})
    out = tmp_path / "out"
    assert main(["arena", str(path), "--out", str(out), "--store", str(tmp_path / "s")]) == 2
    assert "clip_high" in capsys.readouterr().err
    assert not out.exists()


def played(rewards: list[float], drawn: float = 10.0) -> Played:
    return Played({"a": 1.0}, rewards, [drawn] * len(rewards), 1.0, 1.0, 1.0, 1.0)


def test_efficiency_is_when_the_baselines_last_reward_is_reached() -> None:
    baseline = played([0.0] * 5 + [0.5] * 5)
    assert reach(played([0.5] * 10), baseline) == pytest.approx(0.1)
    assert reach(baseline, baseline) == pytest.approx(1.0)
    assert reach(played([0.4] * 10), baseline) is None


def test_what_went_wrong() -> None:
    assert last_over_first([1.0] * 5 + [0.1] * 5) == pytest.approx(0.1)
    assert modes(0.1, 1.0) == ["entropy collapse"]
    assert modes(1.0, 2.0) == modes(1.0, 0.5) == ["length drift"]
    assert modes(0.9, 1.1) == []


def test_the_pages_say_what_the_rows_say() -> None:
    arena = Arena.model_validate(SMALL)
    gain = Gain(value=0.05, low=0.01, high=0.09, p=0.02)
    row = Row(
        ground="arithmetic",
        method="rloo",
        seeds=1,
        pass_at_1=0.5,
        spread=0.0,
        over_start=gain,
        over_baseline=gain,
        rollouts=24,
        tokens=100,
        seconds=2.0,
        efficiency=None,
        entropy=0.1,
        length=1.0,
        modes=["entropy collapse"],
        failures=["seed 1: <b>NaN</b>"],
    )
    text, page = markdown(arena, [row]), render(arena, [row])
    assert "| rloo | 50.0% |" in text
    assert "+5.0 [+1.0, +9.0]" in text
    assert "entropy collapse" in page
    assert "<b>NaN" not in page
    assert "https://" not in page
    assert "http://" not in page
