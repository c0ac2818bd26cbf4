"""A stage that hangs is noticed: whoever makes progress beats, and long silence ends the process.

Every line of a journal is a beat. With `POSTTRAIN_HEARTBEAT_SECONDS` set, a thread watches; after
so many seconds of silence it writes where every thread stands and ends the process with exit code
75, so that the orchestrator tries again from the last checkpoint. A hang inside C code that holds
Python's lock stops this thread too: the pod's deadline is for that.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from posttrain.errors import ConfigError, Fault

VARIABLE = "POSTTRAIN_HEARTBEAT_SECONDS"
_last = time.monotonic()


def beat() -> None:
    """Say that work is getting on."""
    global _last  # one process, one stage: it has one pulse
    _last = time.monotonic()


@contextmanager
def watched() -> Iterator[None]:
    """Within it silence ends the process, if the environment says after how many seconds.

    Raises ConfigError where it says something else.
    """
    given = os.environ.get(VARIABLE) or "0"
    try:
        seconds = float(given)
    except ValueError:
        fault = Fault(f"bad {VARIABLE}", f"{VARIABLE}={given}", "no number", "give seconds")
        raise ConfigError(fault) from None
    if seconds <= 0:
        yield
        return
    done = threading.Event()
    beat()
    threading.Thread(target=_watch, args=(seconds, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(seconds: float, done: threading.Event) -> None:
    while not done.wait(max(_last + seconds - time.monotonic(), 0.01)):
        if time.monotonic() - _last >= seconds:
            text = f"error: no sign of life for {seconds:g} s; the threads stand here:"
            print(text, file=sys.stderr, flush=True)
            faulthandler.dump_traceback(file=2, all_threads=True)
            os._exit(75)
