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
from posttrain.select.measures import Measures
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


Choose = Callable[..., list[Prompt]]


@pytest.fixture
def chosen(unmeasured: Measures) -> Choose:
    """Choose among rows with a selector that measures nothing."""

    def choose(
        name: str, rows: list[Prompt] = ROWS, seed: int = 0, **options: object
    ) -> list[Prompt]:
        select = build(SELECTORS, Plugin(name=name, options=options), "select.selectors")
        found = select(rows, random.Random(seed), unmeasured)
        return [row for row in found if isinstance(row, Prompt)]

    return choose


def test_all_and_first_keep_the_order(chosen: Choose) -> None:
    assert chosen("all") == ROWS
    assert chosen("first", n=3) == ROWS[:3]


def test_hardest_takes_the_highest_bands_first(chosen: Choose) -> None:
    assert [row.id for row in chosen("hardest", n=4)] == ["01", "03", "05", "00"]


def test_balanced_takes_turns_between_tasks_and_bands(chosen: Choose) -> None:
    cells = Counter((row.task, row.difficulty) for row in chosen("balanced", n=4))
    assert cells == {
        ("arithmetic", 1): 1,
        ("arithmetic", 2): 1,
        ("arithmetic", 4): 1,
        ("gsm8k", None): 1,
    }
    assert Counter(row.id for row in chosen("balanced", n=100)) == Counter(row.id for row in ROWS)


def test_by_task_takes_so_many_of_each(chosen: Choose) -> None:
    picked = chosen("by_task", tasks=("gsm8k", "arithmetic"), n=1)
    assert [row.id for row in picked] == ["00", "06"]
    assert [row.id for row in chosen("by_task", tasks=("gsm8k",))] == ["06", "07"]


CALLS: dict[str, dict[str, object]] = {
    "all": {},
    "first": {"n": 5},
    "sample": {"n": 5},
    "balanced": {"n": 5},
    "hardest": {"n": 5},
    "by_task": {"tasks": ("arithmetic",), "n": 5},
    "k_center": {"n": 5},
    "salient_skills": {"n": 5},
}
LACKING: dict[str, tuple[dict[str, object], str]] = {
    "pass_rate_band": ({}, "policy"),
    "learnability": ({}, "policy"),
    "drive": ({"phase": "hard"}, "policy"),
    "entropy_band": ({}, "policy"),
    "perplexity_band": ({}, "policy"),
    "rank_consistency": ({}, "policy"),
    "weak_to_strong": ({"gold": ("arithmetic",)}, "policy"),
    "seed_agreement": ({}, "judge"),
    "margin_band": ({}, "judge"),
    "step_filter": ({}, "judge"),
    "historical_variance": ({}, "history"),
    "lim": ({}, "history"),
}
OF_DEMONSTRATIONS = {"perspectives"}


def test_every_selector_is_held_to_a_law() -> None:
    assert set(SELECTORS) == set(CALLS) | set(LACKING) | OF_DEMONSTRATIONS


@pytest.mark.parametrize("name", sorted(CALLS))
def test_laws_of_selectors(name: str, chosen: Choose) -> None:
    options = CALLS[name]
    picked = chosen(name, **options)
    counts = Counter(row.id for row in picked)
    assert set(counts) <= {row.id for row in ROWS}
    assert max(counts.values()) == 1
    assert len(picked) <= int(str(options.get("n", len(ROWS))))
    assert chosen(name, **options) == picked
    assert chosen(name, [], **options) == []


@pytest.mark.parametrize("name", sorted(LACKING))
def test_a_selector_tells_what_it_lacks_before_any_row(name: str, chosen: Choose) -> None:
    options, missing = LACKING[name]
    with pytest.raises(ConfigError, match=f"no {missing}"):
        chosen(name, [], **options)


def test_sample_depends_on_the_seed(chosen: Choose) -> None:
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
    report = select(tmp_path, journal, selectors=[{"name": "first", "n": 1}])
    assert list(read_rows(tmp_path / "out", Preference)) == [pair]
    assert report == SelectReport(
        rows_read=2, selected=1, difficulty={"3": 1}, tasks={"s": 1}, left={"1 first": 1}
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows.jsonl"]


def test_selectors_choose_one_after_another(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "Prompt")
    chain = [{"name": "by_task", "tasks": ["arithmetic"]}, {"name": "hardest", "n": 3}]
    report = select(tmp_path, journal, selectors=[*chain, {"name": "first", "n": 1}])
    assert [row.id for row in read_rows(tmp_path / "out", Prompt)] == ["01"]
    assert report.left == {"1 by_task": 6, "2 hardest": 3, "3 first": 1}
    early = [chain[0], {"name": "first", "n": 2}]
    report = select(tmp_path, journal, selectors=early)
    assert (report.rows_read, report.left) == (8, {"1 by_task": 6, "2 first": 2})


def test_all_inputs_that_are_missing_are_told_at_once(
    tmp_path: Path, journal: Journal, seal: Seal
) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "Prompt")
    with pytest.raises(ConfigError) as told:
        select(tmp_path, journal, selectors=["pass_rate_band", "lim", "entropy_band"])
    told_of = [(fault.what, fault.where.rpartition(".")[2]) for fault in told.value.faults]
    assert told_of == [
        ("no policy", "pass_rate_band"),
        ("no history", "lim"),
        ("no policy", "entropy_band"),
    ]
    assert not (tmp_path / "out").exists()


def test_too_few_rows_are_an_error(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "Prompt")
    with pytest.raises(DataError, match="of 8 read `1 all` left 8; 9 wanted"):
        select(tmp_path, journal, at_least=9)


def test_a_policy_is_no_dataset(tmp_path: Path, journal: Journal, seal: Seal) -> None:
    write_rows(tmp_path / "in", ROWS)
    seal(tmp_path / "in", "policy")
    with pytest.raises(DataError, match="`policy`, which is no record of rows"):
        select(tmp_path, journal)


def test_bad_options_are_told(chosen: Choose) -> None:
    with pytest.raises(ConfigError, match="n"):
        chosen("first")
    with pytest.raises(ConfigError, match="unknown plug-in `hardst`"):
        chosen("hardst", n=1)
