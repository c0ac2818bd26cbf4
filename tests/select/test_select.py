"""Selectors: one worked example each, laws over the family, and the stage around them."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import Manifest, read_rows, write_rows
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.records import Preference, Prompt, Record
from posttrain.select.selectors import SELECTORS
from posttrain.select.stage import SelectConfig, SelectReport, run

Seal = Callable[[Path, str], Manifest]


def prompt(
    number: int, difficulty: int | None, task: str = "arithmetic", text: str = "?"
) -> Prompt:
    return Prompt(
        id=f"{number:02}", text=text, answer="1", task=task, source="s", difficulty=difficulty
    )


# Bands 1, 1, 1, 2, 2, 4 and two of another task without a band.
ROWS = [prompt(number, band) for number, band in enumerate((1, 4, 1, 2, 1, 2))]
ROWS += [prompt(6, None, "gsm8k"), prompt(7, None, "gsm8k")]


def chosen(name: str, rows: list[Prompt] = ROWS, seed: int = 0, **options: object) -> list[Prompt]:
    select = build(SELECTORS, Plugin(name=name, options=options), "select.selector")
    return [row for row in select(rows, random.Random(seed)) if isinstance(row, Prompt)]


def test_all_and_first_keep_the_order() -> None:
    assert chosen("all") == ROWS
    assert chosen("first", n=3) == ROWS[:3]


def test_hardest_takes_the_highest_bands_first() -> None:
    assert [row.id for row in chosen("hardest", n=4)] == ["01", "03", "05", "00"]


def test_balanced_takes_turns_between_tasks_and_bands() -> None:
    cells = Counter((row.task, row.difficulty) for row in chosen("balanced", n=4))
    assert cells == {
        ("arithmetic", 1): 1,
        ("arithmetic", 2): 1,
        ("arithmetic", 4): 1,
        ("gsm8k", None): 1,
    }
    assert Counter(row.id for row in chosen("balanced", n=100)) == Counter(row.id for row in ROWS)


def test_by_task_takes_so_many_of_each() -> None:
    picked = chosen("by_task", tasks=("gsm8k", "arithmetic"), n=1)
    assert [row.id for row in picked] == ["00", "06"]
    assert [row.id for row in chosen("by_task", tasks=("gsm8k",))] == ["06", "07"]


def test_one_shot_asks_for_the_most_skills() -> None:
    plain = prompt(0, 4, text="Ann has 3 pens. She buys 4 more. She finds 5 more. She gets 1 more.")
    rich = prompt(1, 3, text="Ann buys 3 boxes of 4 pens. She loses 2. Then she gives away half.")
    assert chosen("one_shot", [plain, rich]) == [rich]
    assert chosen("one_shot", []) == []


CALLS: dict[str, dict[str, object]] = {
    "all": {},
    "first": {"n": 5},
    "sample": {"n": 5},
    "balanced": {"n": 5},
    "hardest": {"n": 5},
    "by_task": {"tasks": ("arithmetic",), "n": 5},
    "one_shot": {},
}


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_laws_of_selectors(name: str) -> None:
    options = CALLS[name]
    picked = chosen(name, **options)
    counts = Counter(row.id for row in picked)
    assert set(counts) <= {row.id for row in ROWS}
    assert max(counts.values()) == 1
    assert len(picked) <= int(str(options.get("n", len(ROWS))))
    assert chosen(name, **options) == picked
    assert chosen(name, [], **options) == []


def test_sample_depends_on_the_seed() -> None:
    draws = {tuple(row.id for row in chosen("sample", seed=seed, n=4)) for seed in range(8)}
    assert len(draws) > 4
    assert all(list(draw) == sorted(draw) for draw in draws)


def select(folder: Path, journal: Journal, **options: object) -> SelectReport:
    return run(
        SelectConfig.model_validate(options),
        curated=folder / "in",
        selected=folder / "out",
        journal=journal,
    )


def test_the_stage_keeps_the_record(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    pair = Preference(
        id="a", prompt_id="p", prompt="?", chosen="1", rejected="2", source="s", difficulty=3
    )
    rows: list[Record] = [pair, pair.model_copy(update={"id": "b"})]
    write_rows(tmp_path / "in", rows)
    seal(tmp_path / "in", "Preference")
    report = select(tmp_path, journal, selector={"name": "first", "n": 1})
    assert list(read_rows(tmp_path / "out", Preference)) == [pair]
    assert report == SelectReport(rows_read=1, selected=1, difficulty={"3": 1}, tasks={"s": 1})


def test_too_few_rows_are_an_error(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "Prompt")
    with pytest.raises(DataError, match="chose 8 of 8 read; 9 wanted"):
        select(tmp_path, journal, at_least=9)


def test_a_policy_is_no_dataset(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "policy")
    with pytest.raises(DataError, match="`policy`, which is no record of rows"):
        select(tmp_path, journal)


def test_bad_options_are_told() -> None:
    with pytest.raises(ConfigError, match="n"):
        chosen("first")
    with pytest.raises(ConfigError, match="unknown plug-in `hardst`"):
        chosen("hardst", n=1)
