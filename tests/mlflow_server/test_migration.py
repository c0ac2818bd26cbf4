"""SQLite to a real Postgres: every row arrives, or none does."""

import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from posttrain.artifacts import Manifest
from posttrain.cli import main
from posttrain.errors import ConfigError, DataError
from posttrain.mlflow_client import connect
from posttrain.mlflow_migrate import migrate
from posttrain.registry import Evidence, Registry
from posttrain.shipper import Shipper

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seal: Callable[..., Manifest]) -> Path:
    """A SQLite file with runs, curves, parameters, inputs, versions and aliases."""
    from mlflow.entities import Dataset, DatasetInput, Metric, Param

    folder = tmp_path_factory.mktemp("runs")
    uri = f"sqlite:///{folder}/mlflow.db"
    policy = folder / "policy"
    policy.mkdir()
    (policy / "weights.txt").write_text("ten")
    seal(policy, "model")
    registry = Registry(uri, "posttrain-policy")
    version = registry.register(policy, "a" * 64, Evidence(scores={"s": {"1": 1.0}}), upload=True)
    registry.promote(version)
    run_folder = folder / "run"
    (run_folder / "stages").mkdir(parents=True)
    Shipper(run_folder, uri).sync()
    client = connect(uri)
    run = client.create_run("1", run_name="é “quoted”\nname", tags={"a": "b"}).info.run_id
    values = (1.5, math.nan, math.inf, -1e-300)
    client.log_batch(
        run,
        metrics=[Metric(f"m/{i % 7}", v, i, i) for i in range(3000) for v in values],
        params=[Param("p", "x" * 6000)],
    )
    data = Dataset(name="d", digest="e" * 36, source_type="posttrain", source="e" * 64)
    client.log_inputs(run, [DatasetInput(data, [])])
    return folder


def content(uri: str) -> dict[str, set[tuple[Any, ...]]]:
    engine = sa.create_engine(uri)
    found = sa.MetaData()
    found.reflect(engine)
    with engine.connect() as connection:
        return {
            name: {tuple(row) for row in connection.execute(sa.select(table))}
            for name, table in found.tables.items()
        }


def test_every_row_arrives_and_the_numbers_go_on(
    folder: Path, postgres: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = postgres("whole")
    assert main(["mlflow", "migrate", str(folder / "mlflow.db"), "--to", uri]) == 0
    told = capsys.readouterr().out
    assert "metrics: 12000 rows" in told
    before, after = content(f"sqlite:///{folder}/mlflow.db"), content(uri)
    assert {name: len(rows) for name, rows in before.items()} == {
        name: len(rows) for name, rows in after.items()
    }
    for name in ("metrics", "params", "tags", "registered_model_aliases", "model_versions"):
        assert before[name] == after[name], name

    from mlflow import MlflowClient

    client = MlflowClient(uri)
    assert int(client.get_model_version_by_alias("posttrain-policy", "champion").version) == 1
    numbers = {experiment.experiment_id for experiment in client.search_experiments()}
    assert client.create_experiment("the next one") not in numbers


def test_files_are_found_at_their_new_place(folder: Path, postgres: Any) -> None:
    uri = postgres("places")
    migrate(folder / "mlflow.db", uri, "mlflow-artifacts:/")
    rows = content(uri)
    places = " ".join(str(row) for name in ("runs", "experiments") for row in rows[name])
    assert "mlflow-artifacts:/registry/" in places
    assert "mlflow-artifacts:/artifacts/" in places
    assert folder.as_uri() + "/registry" not in places


def test_a_target_with_rows_is_refused_and_stays(folder: Path, postgres: Any) -> None:
    uri = postgres("taken")
    migrate(folder / "mlflow.db", uri)
    before = content(uri)
    with pytest.raises(ConfigError, match="not empty"):
        migrate(folder / "mlflow.db", uri)
    assert content(uri) == before


def test_a_row_that_postgres_refuses_leaves_nothing(
    folder: Path, postgres: Any, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(folder / "mlflow.db", tmp_path))
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE tags SET value = 'a' || char(0) || 'b' WHERE key = 'a'")
    uri = postgres("torn")
    with pytest.raises(DataError):
        migrate(copy, uri)
    assert not content(uri)["experiments"]
    migrate(folder / "mlflow.db", uri)


def test_another_release_and_another_database_are_refused(
    folder: Path, postgres: Any, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(folder / "mlflow.db", tmp_path))
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE alembic_version SET version_num = 'older'")
        database.execute("CREATE TABLE mine (id INTEGER)")
    with pytest.raises(ConfigError) as refused:
        migrate(copy, postgres("other"))
    assert [fault.what for fault in refused.value.faults] == [
        "schemas of two releases",
        "unknown table mine",
    ]
    with pytest.raises(ConfigError, match="not Postgres"):
        migrate(copy, f"sqlite:///{tmp_path}/target.db")
    with pytest.raises(ConfigError, match="no such file"):
        migrate(tmp_path / "none.db", postgres("none"))


def test_a_backup_is_restored_whole(folder: Path, postgres: Any) -> None:
    uri = postgres("kept")
    migrate(folder / "mlflow.db", uri)
    dump = str(postgres.folder / "mlflow.dump")
    postgres.run("pg_dump", "--format=custom", "--file", dump, "kept")
    again = postgres("restored")
    postgres.run("pg_restore", "--single-transaction", "--no-owner", "--dbname", "restored", dump)
    assert content(again) == content(uri)
