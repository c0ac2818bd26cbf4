"""A lock that processes on several machines share through MLflow alone.

It is a registered model that exists while somebody holds it: a store makes each name only once,
whether it is a SQLite file or a server.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LEASE_SECONDS = 120.0
"""A lock that stays the same for so long was left by a process that was killed (assumed)."""
POLL_SECONDS = 0.2


@contextmanager
def held(client: Any, name: str) -> Iterator[None]:
    """Hold the lock, waiting for whoever holds it; raise whatever MLflow raises."""
    owner = uuid.uuid4().hex
    _take(client, name, owner)
    try:
        yield
    finally:
        if _owner(client, name) == owner:
            _drop(client, name)


def made(client: Any, name: str, description: str | None = None) -> bool:
    """Make a registered model; False where there is one of that name."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return False
    return True


def _take(client: Any, name: str, owner: str) -> None:
    seen, since = "", time.monotonic()
    while not made(client, name, owner):
        holder = _owner(client, name)
        if holder != seen:
            seen, since = holder, time.monotonic()
        elif holder and time.monotonic() - since > LEASE_SECONDS:
            _drop(client, name)
        time.sleep(POLL_SECONDS)


def _owner(client: Any, name: str) -> str:
    """Who holds the lock; empty where nobody does."""
    from mlflow.exceptions import MlflowException

    try:
        return str(client.get_registered_model(name).description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return ""


def _drop(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.delete_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
