"""The procedural source: counts as asked, determinism, and dirt that is what its label says."""

from collections import Counter
from pathlib import Path

import pytest

from posttrain.artifacts import read_rows
from posttrain.errors import ConfigError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.raw.sources import SOURCES
from posttrain.raw.sources.dirt import DIRT
from posttrain.raw.sources.procedural import SHARES
from posttrain.raw.stage import RawConfig, run
from posttrain.records import RawRow
from posttrain.tasks import TASKS, split_of

COUNTS = {"demonstrations": 300, "preferences": 300, "prompts": 300, "evaluation": 200}


def rows_of(seed: int = 0, **options: object) -> list[RawRow]:
    source = build(SOURCES, Plugin(name="procedural", options=COUNTS | options), "raw.sources")
    return [row for row in source(seed) if isinstance(row, RawRow)]


def is_clean(row: RawRow) -> bool:
    return "+" not in row.source


def test_counts_and_shares_are_as_asked() -> None:
    rows = rows_of()
    assert Counter(row.kind for row in rows if is_clean(row)) == COUNTS
    for kind, count in COUNTS.items():
        dirt = Counter(
            row.source.split("+")[1] for row in rows if row.kind == kind and "+" in row.source
        )
        assert dirt == {
            name: round(share * count) for name, share in SHARES.items() if kind in DIRT[name]
        }


def test_clean_rows_are_right_distinct_and_in_their_split() -> None:
    clean = [row for row in rows_of() if is_clean(row)]
    assert len({row.prompt for row in clean}) == len(clean)
    for row in clean:
        assert row.split == split_of(row.prompt)
        right = row.response or row.chosen
        assert right is None or TASKS[row.task].verify(row.prompt, row.answer or "", right)
        assert row.rejected is None or not TASKS[row.task].verify(
            row.prompt, row.answer or "", row.rejected
        )


def test_a_copy_comes_after_what_it_copies() -> None:
    seen: set[str] = set()
    for row in rows_of():
        text = "\n".join((row.kind, row.prompt, row.response or "", row.rejected or ""))
        if row.source.endswith("+exact_duplicate"):
            assert text in seen
        seen.add(text)


def test_contaminated_rows_come_from_the_evaluation() -> None:
    rows = rows_of(dirt={"contaminated": 0.5})
    held_out = {row.prompt for row in rows if row.kind == "evaluation"}
    leaked = [row for row in rows if row.source.endswith("+contaminated")]
    assert {row.split for row in leaked} == {"train"}
    exact = sum(row.prompt in held_out for row in leaked)
    assert 0.4 < exact / len(leaked) < 0.6


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_can_be_soiled(task: str) -> None:
    dirt = dict.fromkeys(DIRT, 0.3)
    rows = rows_of(
        task=task, dirt=dirt, demonstrations=60, preferences=60, prompts=60, evaluation=40
    )
    labels = {row.source.split("+")[1] for row in rows if not is_clean(row)}
    assert labels == set(DIRT)
    wrong = [row for row in rows if row.source.endswith("+wrong_answer") and row.response]
    assert not any(
        TASKS[task].verify(row.prompt, row.answer or "", row.response or "") for row in wrong
    )


def test_same_seed_same_bytes_and_another_seed_others(tmp_path: Path, journal: Journal) -> None:
    source = Plugin(name="procedural", options=COUNTS)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(RawConfig(seed=seed, sources=[source]), rows=tmp_path / name, journal=journal)
    first, again, other = ((tmp_path / name / "rows.jsonl").read_bytes() for name in "abc")
    assert first == again
    assert first != other
    assert len(list(read_rows(tmp_path / "a", RawRow))) == first.count(b"\n")


def test_another_part_draws_other_problems() -> None:
    first, other = ({row.prompt for row in rows_of(part=part)} for part in (0, 1))
    assert len(first & other) < 0.05 * len(first)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dirt": {"dust": 0.1}}, "unknown dirt `dust`"),
        ({"difficulty": {9: 1.0}}, "unknown band 9"),
        ({"difficulty": {1: 0.0}}, "no difficulty"),
        ({"prompts": -1}, "prompts"),
        ({"task": "chess"}, "task"),
    ],
)
def test_bad_options_are_told(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        rows_of(**options)
