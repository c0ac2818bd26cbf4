"""Interruption: somebody asks the stage at work to stop, and it stops where nothing is lost.

A stage that is asked finishes its step, writes a checkpoint and raises the error that it was asked
with (`heed`, by way of `Journal.pause`). One that does not get there in time has it raised where
it stands, and a process that swallows even that is ended: what is on disk outlives a kill.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from posttrain.errors import Fault, PosttrainError, TransientError

GRACE_SECONDS = 15.0
"""Half of what Kubernetes gives a pod unless told other; `POSTTRAIN_GRACE_SECONDS` overrules it."""

LAST_SECONDS = 5.0
"""From the error raised where the process stands to its end, for what has to be closed."""

PREEMPTED = TransientError(
    Fault("preempted", "SIGTERM", "the machine is being taken away", "run it again")
)


class _State:
    """What was asked, the clock that runs since, and how deep in work the process is."""

    def __init__(self) -> None:
        self.error: PosttrainError | None = None
        self.clock: threading.Timer | None = None
        self.working = 0
        self.listening = False


_state = _State()


def ask(error: PosttrainError, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask the stage at work to stop with `error`, within so many seconds; from any thread.

    Of several askers the first counts. With no stage at work there is nothing to wait for. Where
    nobody listens to signals (a notebook) the stage stops at its next checkpoint and no sooner.
    """
    if _state.error is not None:
        return
    _state.error = error
    if _state.listening:
        _wind(grace_seconds if _state.working else 0.0, _raise_where_it_stands)


def asked() -> PosttrainError | None:
    """The error that the stage was asked to stop with, if it was."""
    return _state.error


def heed() -> None:
    """Raise what was asked; called where everything done so far is on disk."""
    if _state.error is not None:
        raise _state.error


@contextmanager
def listening() -> Iterator[None]:
    """Within it, SIGTERM asks with `PREEMPTED`, and a second one raises at once.

    Outside the main thread, and within another of its kind, nothing changes.
    """
    if _state.listening or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _told)
    _state.error, _state.listening = None, True
    try:
        yield
    finally:
        _stop_the_clock()
        signal.signal(signal.SIGTERM, before)
        _state.error, _state.listening = None, False


@contextmanager
def at_work() -> Iterator[None]:
    """Within it, who asks has to wait for the next checkpoint, as long as the grace lasts."""
    _state.working += 1
    try:
        yield
    finally:
        _state.working -= 1


def grace_seconds() -> float:
    """The seconds from SIGTERM to the error raised where the process stands."""
    try:
        return float(os.environ.get("POSTTRAIN_GRACE_SECONDS", GRACE_SECONDS))
    except ValueError:
        return GRACE_SECONDS


def _told(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, be it from outside or from the clock."""
    if _state.working and _state.error is None:
        ask(PREEMPTED, grace_seconds())
        return
    _state.error = _state.error or PREEMPTED
    _wind(LAST_SECONDS, _end)
    raise _state.error


def _wind(seconds: float, then: Callable[[], None]) -> None:
    _stop_the_clock()
    _state.clock = threading.Timer(seconds, then)
    _state.clock.daemon = True
    _state.clock.start()


def _stop_the_clock() -> None:
    if _state.clock is not None:
        _state.clock.cancel()
        _state.clock = None


def _raise_where_it_stands() -> None:
    # Only the main thread can be interrupted, and only by a signal.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _end() -> None:
    error = _state.error or PREEMPTED
    print(f"error: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)
