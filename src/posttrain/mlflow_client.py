"""The way to MLflow: a client of a server or of a SQLite file, and what its failures mean.

The name and password of a server with users, and the certificate of its authority, are MLflow's
own variables: MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_SERVER_CERT_PATH.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from posttrain.disk import locked
from posttrain.errors import ConfigError, Fault, PosttrainError, TransientError

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Set unless the caller did. Few tries: the caller tries again later, and may hold a lock."""

REFUSED = (401, 403)


def connect(uri: str) -> Any:
    """MLflow's client of a tracking server or a SQLite file, which is made if it is not there."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    if database := sqlite_file(uri):
        prepare(database)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI."""
    prefix = "sqlite:///"
    return Path(uri.removeprefix(prefix).split("?")[0]) if uri.startswith(prefix) else None


def prepare(database: Path) -> None:
    """Make the tables of a new SQLite file, once however many processes start, and all or none.

    They are made in a file beside it, which then gets the name: a process that is killed in the
    seconds that this takes leaves no half-made database behind.
    """
    if database.exists():
        return
    with locked(database.with_name(f"{database.name}.lock")):
        if database.exists():
            return
        from mlflow.db import upgrade

        fresh = database.with_name(f".{database.name}.new")
        for rest in fresh.parent.glob(f"{fresh.name}*"):
            rest.unlink()
        upgrade.callback(f"sqlite:///{fresh}")
        # A link, unlike a rename, never replaces what a server made meanwhile.
        with suppress(FileExistsError):
            os.link(fresh, database)
        fresh.unlink()


def experiment_id(client: Any, uri: str, name: str, folder: str) -> str:
    """The id of an experiment, which is made if it is not there. Its files go into `folder` beside
    a local database; a server knows its own place for them."""
    from mlflow.exceptions import MlflowException

    database = sqlite_file(uri)
    place = (database.parent / folder).resolve().as_uri() if database else None
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another process was faster
    return str(found.experiment_id)


@contextmanager
def answering(uri: str) -> Iterator[None]:
    """Raise what MLflow and its stores raise as `explained` has it."""
    try:
        yield
    except Exception as error:
        if (told := explained(uri, error)) is None:
            raise
        raise told from error


def explained(uri: str, error: Exception) -> PosttrainError | None:
    """A failure of MLflow, its stores or the way there: `ConfigError` where a server refuses the
    user, else `TransientError`. None: it is none of these."""
    from mlflow.exceptions import MlflowException

    # Not imported, so none of its errors can be here: it takes half a second.
    stores = getattr(sys.modules.get("sqlalchemy.exc"), "SQLAlchemyError", MlflowException)
    if not isinstance(error, (MlflowException, OSError, stores)):
        return None
    why = " ".join(str(error).split())
    # The address that was asked comes first, and what was wrong with it last.
    why = why if len(why) < 300 else f"{why[:150]} ... {why[-140:]}"
    if isinstance(error, MlflowException) and error.get_http_status_code() in REFUSED:
        mend = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return ConfigError(Fault("MLflow refuses the user", uri, why, mend))
    mend = "see that it runs and try again"
    return TransientError(Fault("MLflow cannot be reached", uri, why, mend))
