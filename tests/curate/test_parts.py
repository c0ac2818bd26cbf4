"""Curation in parts: whatever the parts, the outputs are those of `curate`, byte for byte."""

from pathlib import Path

import pytest

from posttrain.artifacts import ROWS, content_files, digest_of, write_rows
from posttrain.config import Plugin, Recipe, resolve
from posttrain.curate import stage as curate
from posttrain.curate_learn import stage as curate_learn
from posttrain.curate_map import stage as curate_map
from posttrain.curate_reduce import stage as curate_reduce
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.raw.sources.procedural import procedural
from posttrain.records import RawRow

OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
OPTIONS = {"workers": 1, "shard_bytes": 10_000}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "rows"
    counts = {"demonstrations": 60, "preferences": 60, "prompts": 60, "evaluation": 30}
    made = [row for row in procedural(0, task="arithmetic", **counts) if isinstance(row, RawRow)]
    write_rows(folder, made)
    return folder


def digests(outputs: dict[str, Path]) -> dict[str, str]:
    return {port: digest_of(content_files(folder)) for port, folder in outputs.items()}


def learned(rows: Path, home: Path) -> Path:
    config = curate_learn.CurateLearnConfig(**OPTIONS)
    curate_learn.run(config, rows=rows, evaluation=home / "learned", journal=Journal(home / "j"))
    return home / "learned"


def mapped(rows: Path, home: Path, evaluation: Path, part: str, **options: object) -> Path:
    config = curate_map.CurateMapConfig(**(OPTIONS | {"part": part} | options))
    target = home / "finished" / part.replace("/", "of")
    journal = Journal(home / "journals" / part.replace("/", "of"))
    curate_map.run(config, rows=rows, evaluation=evaluation, finished=target, journal=journal)
    return target


def reduced(
    rows: Path, home: Path, finished: list[Path]
) -> tuple[curate.CurateReport, dict[str, str]]:
    outputs = {port: home / port for port in OUTPUTS}
    config = curate_reduce.CurateReduceConfig(**OPTIONS)
    journal = Journal(home / "journals/reduce")
    report = curate_reduce.run(config, rows=rows, finished=finished, **outputs, journal=journal)
    return report, digests(outputs)


@pytest.fixture(scope="module")
def whole(rows: Path) -> tuple[curate.CurateReport, dict[str, str]]:
    home = rows.parent / "whole"
    outputs, journal = {port: home / port for port in OUTPUTS}, Journal(home / "journal")
    report = curate.run(curate.CurateConfig(**OPTIONS), rows=rows, **outputs, journal=journal)
    assert 3 < len(report.shards) < 20
    return report, digests(outputs)


def test_the_rows_to_learn_from_are_the_evaluation_rows(rows: Path, tmp_path: Path) -> None:
    wanted = [line for line in (rows / ROWS).open() if '"split":"eval"' in line]
    assert (learned(rows, tmp_path) / ROWS).read_text() == "".join(wanted)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_parts_make_what_curate_makes(
    count: int, rows: Path, whole: tuple[curate.CurateReport, dict[str, str]], tmp_path: Path
) -> None:
    """Twenty parts are more than there are shards: some are empty."""
    evaluation = learned(rows, tmp_path)
    names = [f"{number}/{count}" for number in range(1, count + 1)]
    finished = [mapped(rows, tmp_path, evaluation, name) for name in names]
    # In whatever order they come in.
    assert reduced(rows, tmp_path / "reduced", finished[::-1]) == whole


def test_a_part_does_not_depend_on_who_made_it(rows: Path, tmp_path: Path) -> None:
    evaluation = learned(rows, tmp_path)
    first, second = (
        mapped(rows, tmp_path / name, evaluation, "2/3") for name in ("first", "second")
    )
    assert content_files(first) == content_files(second)


def test_all_that_is_wrong_with_parts_is_told_at_once(rows: Path, tmp_path: Path) -> None:
    evaluation = learned(rows, tmp_path)
    finished = [mapped(rows, tmp_path, evaluation, part) for part in ("1/4", "3/4")]
    finished.append(mapped(rows, tmp_path, evaluation, "2/4", filters=[Plugin(name="schema")]))
    finished.append(mapped(rows, tmp_path / "again", evaluation, "3/4"))
    with pytest.raises(DataError) as told:
        reduced(rows, tmp_path / "reduced", finished)
    assert [fault.what for fault in told.value.faults] == [
        "not a part of these rows",
        "part 3/4 is not there once",
        "part 4/4 is not there once",
    ]
    assert "made with filters" in told.value.faults[0].why
    assert "there are 2 folders of it" in told.value.faults[1].why


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", "1/2/3", "-1/2", ""])
def test_a_part_is_a_number_of_a_number(part: str) -> None:
    config, stage = curate_map.CurateMapConfig, "curate_map"
    with pytest.raises(ConfigError) as told:
        resolve(config, stage, stage, [], {"part": part})
    assert "NUMBER/OF" in str(told.value)


def test_the_section_of_curate_counts_and_its_own_outranks_it() -> None:
    sections = {"curate": {"shard_bytes": 7, "workers": 3}, "curate_map": {"workers": 2}}
    layer = Recipe("r", "r.yaml", "", None, sections)
    config = resolve(curate_map.CurateMapConfig, "curate_map", "curate_map", [layer], {})
    assert (config.shard_bytes, config.workers) == (7, 2)
