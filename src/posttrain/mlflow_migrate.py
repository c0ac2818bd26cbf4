"""Move MLflow's SQLite file into an empty Postgres database: all rows or none.

The tables are copied in the order of their foreign keys, in one transaction, which is committed
after the rows of both sides were found equal. Both sides must be of the installed release.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from posttrain.errors import ConfigError, DataError, Fault
from posttrain.mlflow_client import answering

AT_ONCE = 1000
RELEASE = "alembic_version"
MADE_WITH_TABLES = "workspaces"
"""It holds its first row as soon as there are tables."""
PLACES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "model_versions": ("source", "storage_location"),
    "logged_models": ("artifact_location",),
}
LOCAL = ("artifacts", "registry")
"""Folders beside the file into which runs put their files."""


def migrate(file: Path, uri: str, artifacts: str = "") -> dict[str, int]:
    """Copy a SQLite file into an empty database; return table -> rows.

    `artifacts` is where the folders of files beside the SQLite file will stand from now on, such as
    `mlflow-artifacts:/` (whoever calls copies them there); the places in the rows are changed so.
    Raises `ConfigError` for a source or target that does not fit, `DataError` for rows that
    Postgres refuses.
    """
    engine = target_engine(uri)
    source = sa.create_engine(f"sqlite:///{existing(file)}")
    beside = file.resolve().parent.as_uri()
    moved = {f"{beside}/{name}/": f"{artifacts.rstrip('/')}/{name}/" for name in LOCAL}
    with answering(engine.url.render_as_string(hide_password=True)):
        fit_to_copy(source, engine)
        try:
            with source.connect() as old, engine.begin() as new:
                return copied(old, new, moved if artifacts else {})
        except (sa.exc.IntegrityError, sa.exc.DataError) as error:
            why = str(error.orig).split("\n")[0]
            mend = "mend the row in a copy of the file; nothing was written"
            raise DataError(Fault("Postgres refuses a row", str(file), why, mend)) from error


def existing(file: Path) -> Path:
    """The file, if it is one: SQLite would make it."""
    if not file.is_file():
        raise ConfigError(Fault("no such file", str(file), "it is the source", "name the file"))
    return file


def target_engine(uri: str) -> sa.Engine:
    """The way to the target, which must be Postgres."""
    try:
        engine = sa.create_engine(uri)
    except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
        mend = "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, with posttrain[server] installed"
        raise ConfigError(Fault("no database to copy to", "--to", str(error), mend)) from None
    if engine.dialect.name != "postgresql":
        name = engine.dialect.name
        raise ConfigError(
            Fault("not Postgres", "--to", f"it is {name}", "name a Postgres database")
        )
    return engine


def fit_to_copy(source: sa.Engine, target: sa.Engine) -> None:
    """Make the target's tables if it has none; refuse what cannot be copied whole."""
    from mlflow.db import upgrade

    if not sa.inspect(target).get_table_names():
        upgrade.callback(target.url.render_as_string(hide_password=False))
    faults = []
    releases = [release_of(engine) for engine in (source, target)]
    if releases[0] is None or releases[0] != releases[1]:
        mend = "`mlflow db upgrade URI` on a copy of the older one"
        why = f"{releases[0]} here, {releases[1]} there"
        faults.append(Fault("schemas of two releases", str(source.url), why, mend))
    names = set(tables())
    if more := sorted(set(sa.inspect(source).get_table_names()) - names - {RELEASE}):
        why = "it would be left behind"
        faults.append(Fault(f"unknown table {more[0]}", str(source.url), why, "drop it in a copy"))
    there = sorted(set(sa.inspect(target).get_table_names()) - {RELEASE, MADE_WITH_TABLES})
    with target.connect() as new:
        rows = {name: sa.select(sa.literal(1)).select_from(sa.table(name)) for name in there}
        full = [name for name, row in rows.items() if new.scalar(row.limit(1))]
    if full:
        mend = "createdb another, and copy before a server is started on it"
        faults.append(
            Fault("the target is not empty", str(target.url), f"rows in {', '.join(full)}", mend)
        )
    if faults:
        raise ConfigError(*faults)


def release_of(engine: sa.Engine) -> str | None:
    """The revision of a database's schema."""
    if RELEASE not in sa.inspect(engine).get_table_names():
        return None
    with engine.connect() as connection:
        found: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {RELEASE}"))
        return found


def tables() -> Mapping[str, sa.Table]:
    """The tables of the installed release, those first that others point to."""
    import mlflow.store.db.utils  # noqa: F401  declares them
    from mlflow.store.db.base_sql_model import Base

    return {table.name: table for table in Base.metadata.sorted_tables}


def copied(old: sa.Connection, new: sa.Connection, moved: Mapping[str, str]) -> dict[str, int]:
    """Copy and compare every table."""
    new.execute(sa.text(f"DELETE FROM {MADE_WITH_TABLES}"))
    counts = {}
    for name, table in tables().items():
        for rows in portions(old, table, moved):
            new.execute(sa.insert(table), [dict(row) for row in rows])
        restart_numbers(new, table)
        given, arrived = (digest(portions(side, table, moved)) for side in (old, new))
        if given != arrived:
            why = f"{given[0]} rows here, {arrived[0]} there"
            mend = "nothing was written; see that nobody writes to the file meanwhile"
            raise DataError(Fault("the copy differs", name, why, mend))
        counts[name] = given[0]
    return counts


def portions(
    side: sa.Connection, table: sa.Table, moved: Mapping[str, str]
) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, some at a time, with the places of files as they will be."""
    places = PLACES.get(table.name, ())
    query = sa.select(table).execution_options(yield_per=AT_ONCE)
    found = side.execute(query).mappings()
    for some in found.partitions():
        rows = [dict(row) for row in some]
        for row in rows:
            for place in places:
                for before, after in moved.items():
                    if f"{row[place]}/".startswith(before):
                        row[place] = f"{after}{row[place][len(before) :]}".rstrip("/")
        yield rows


def digest(portions_: Iterator[list[dict[str, Any]]]) -> tuple[int, int]:
    """How many rows, and the sum of their digests: the two sides sort text differently."""
    count = total = 0
    for rows in portions_:
        count += len(rows)
        for row in rows:
            text = repr(sorted(row.items())).encode("utf-8", "surrogatepass")
            total += int.from_bytes(sha256(text).digest(), "big")
    return count, total % 2**256


def restart_numbers(new: sa.Connection, table: sa.Table) -> None:
    """Let a counted key go on behind the rows that were copied with theirs."""
    for column in table.primary_key:
        if not isinstance(column.type, sa.Integer):
            continue
        names = {"table": table.name, "column": column.name}
        counter = new.scalar(sa.text("SELECT pg_get_serial_sequence(:table, :column)"), names)
        last = new.scalar(sa.select(sa.func.max(column)))
        if counter and last:
            new.execute(
                sa.text("SELECT setval(:counter, :last)"), {"counter": counter, "last": last}
            )
