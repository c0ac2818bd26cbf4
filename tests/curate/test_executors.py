"""Executors: whatever runs the workers, the shards and what comes of them are the same."""

import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.artifacts import ROWS, content_files, digest_of, write_rows
from posttrain.config import resolve
from posttrain.curate.executors import EXECUTORS
from posttrain.curate.shards import Shard
from posttrain.curate.stage import CurateConfig, run
from posttrain.errors import ConfigError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.raw.sources.procedural import procedural
from posttrain.records import RawRow

OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
SHARDS = [Shard(number, 10 * number, 10 * number + 10) for number in range(9)]
END = operator.attrgetter("end")


@pytest.fixture(params=sorted(EXECUTORS))
def executor(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ray":
        engine = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[data]'")
    yield request.param
    if request.param == "ray":
        engine.shutdown()


def test_results_come_in_the_order_of_the_shards(executor: str) -> None:
    execute = build(EXECUTORS, Plugin(name=executor), "curate.executor")
    assert list(execute(END, SHARDS, 2)) == [10 * number + 10 for number in range(9)]
    assert list(execute(END, [], 2)) == []


def test_curation_is_the_same_by_any_executor(executor: str, tmp_path: Path) -> None:
    counts = {"demonstrations": 30, "preferences": 30, "prompts": 30, "evaluation": 20}
    made = procedural(0, task="arithmetic", **counts)
    write_rows(tmp_path / "rows", (row for row in made if isinstance(row, RawRow)))
    size = (tmp_path / "rows" / ROWS).stat().st_size

    def digests(name: str, workers: int) -> list[str]:
        home = tmp_path / name
        outputs = {port: home / port for port in OUTPUTS}
        config = CurateConfig(executor=Plugin(name=name), workers=workers, shard_bytes=size // 5)
        run(config, rows=tmp_path / "rows", **outputs, journal=Journal(home / "journal"))
        return [digest_of(content_files(folder)) for folder in outputs.values()]

    alone = digests("processes", 1)
    assert executor == "processes" or digests(executor, 2) == alone


def test_an_executor_is_named_in_the_recipe() -> None:
    with pytest.raises(ConfigError) as told:
        resolve(CurateConfig, "curate", "curate", [], {"executor": "rai"})
    assert "ray" in str(told.value)


def test_without_ray_the_message_says_what_to_install() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        execute = build(EXECUTORS, Plugin(name="ray"), "curate.executor")
        with pytest.raises(ConfigError) as told:
            list(execute(END, SHARDS, 2))
        assert "pip install 'ray[data]'" in str(told.value)
