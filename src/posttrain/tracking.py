"""Tracking: send a run folder to MLflow while a run goes on, at its end, or later.

The run folder is the spool: records and curves are on disk first. A server that cannot be reached
therefore loses nothing and stops nothing: it is tried again while the run goes on, and
`posttrain track RUN` sends the rest later.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.errors import PosttrainError
from posttrain.mlflow_client import answering
from posttrain.shipper import Shipper

SEND_EVERY_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 60.0


def send(run_folder: Path, uri: str, *, parent: str | None = None, close: bool = True) -> int:
    """Send everything new, with `close` also the report, and end the parent run; return how many
    tasks have been sent whole. Raises `TransientError` where the server cannot be reached,
    `ConfigError` where it refuses the user."""
    with answering(uri):
        shipper = Shipper(run_folder, uri, parent)
        sent = shipper.sync()
        if close:
            shipper.close(artifacts=(run_folder / "report.html", run_folder / "summary.json"))
        return sent


def ship(run_folder: Path, uri: str, *, parent: str | None = None) -> str:
    """Send a run folder and end its parent run; return what to tell the user, whatever happens."""
    try:
        return f"tracking: {send(run_folder, uri, parent=parent)} tasks in {uri}"
    except PosttrainError as error:
        return kept(run_folder, error)


def kept(run_folder: Path, error: PosttrainError) -> str:
    """Tell in one line that a server did not take what a run folder holds."""
    fault = error.faults[0]
    return (
        f"tracking: {fault.what} ({fault.where}: {fault.why}; {fault.mend}); nothing is lost: the"
        f" metrics are in {run_folder}, `posttrain track {run_folder}` sends them later"
    )


@contextmanager
def live(run_folder: Path, uri: str, *, parent: str | None = None) -> Iterator[None]:
    """Send a run folder in the background while the body runs.

    A server that does not answer is told of once and tried again, ever more rarely: what it
    missed it gets when it is back. What the body wrote last is for `ship` to send.
    """
    done = threading.Event()

    def work() -> None:
        told, wait = False, SEND_EVERY_SECONDS
        while not done.wait(wait):
            try:
                send(run_folder, uri, parent=parent, close=False)
                wait = SEND_EVERY_SECONDS
            except PosttrainError as error:
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                if not told:
                    print(kept(run_folder, error), file=sys.stderr, flush=True)
                told = True

    thread = threading.Thread(target=work, name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
