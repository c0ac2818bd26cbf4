"""The attempts at a task in a cluster, for an orchestrator that retries whatever fails.

Kubeflow cannot read an exit code. So each attempt writes its beginning and its end into the run
folder, which all pods of a run share, and the next one looks there first: after a failure that a
retry cannot mend it ends at once, with the same code. A machine that was taken away (75, or an
attempt without an end) is no failure. After `FORGET_SECONDS` without an attempt it was not the
orchestrator who retried but a person who mended something, and the past does not count.
"""

import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple, TextIO

from posttrain.artifacts import write_json

PERMANENT = (2, 3)
TRANSIENT = (0, 75)
TRIES = 3
"""Failures of another kind (a bug of ours, exit code 1) that are allowed before the last one counts
as permanent."""

FORGET_SECONDS = 900.0
TOLD_LINES = 40


class Attempt(NamedTuple):
    """One attempt: Unix seconds, its exit code (None: it has no end), and its last lines."""

    began: float
    ended: float | None = None
    code: int | None = None
    told: str = ""


class Ledger:
    """The attempts at one task of one run, oldest first, a file each in a folder of their own."""

    def __init__(self, run_folder: Path, task: str, options: Mapping[str, str]) -> None:
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]
        self.folder = run_folder / "attempts" / (f"{task}-{digest}" if options else task)

    def read(self) -> list[Attempt]:
        """What is known of earlier attempts; a torn file is an attempt without an end."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(Attempt(**json.loads(path.read_text(encoding="utf-8"))))
            except (ValueError, TypeError):
                found.append(Attempt(path.stat().st_mtime))
        return found

    def verdict(self, now: float) -> Attempt | None:
        """The failure because of which no further attempt shall be made, if there is one."""
        attempts = [each for each in self.read() if each.ended is not None]
        if not attempts or now - max(each.ended or 0.0 for each in attempts) > FORGET_SECONDS:
            return None
        failures = [each for each in attempts if each.code not in TRANSIENT]
        if not failures:
            return None
        hopeless = failures[-1].code in PERMANENT or len(failures) >= TRIES
        return failures[-1] if hopeless else None

    def attempt(self, work: Callable[[], int]) -> int:
        """Do the work unless the past forbids it; return its exit code, or that of the past."""
        now = time.time()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{len(list(self.folder.glob('*.json'))):03}.json"
        before = self.verdict(now)
        if before and before.code is not None:
            print(f"not tried again after exit code {before.code}", file=sys.stderr)
            print(before.told, file=sys.stderr)
            write_json(path, before._replace(began=now, ended=time.time())._asdict())
            return before.code
        write_json(path, Attempt(now)._asdict())
        told = Told(sys.stderr)
        code = 1
        try:
            with redirect_stderr(told):
                code = work()
        finally:
            write_json(path, Attempt(now, time.time(), code, told.tail())._asdict())
        return code


class Told:
    """Standard error that also keeps its last lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=TOLD_LINES)

    def write(self, text: str) -> int:
        self._lines.extend(text.splitlines(keepends=True))
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def tail(self) -> str:
        """The last lines, from the first that begins an error message if there is one."""
        text = "".join(self._lines)
        return text[max(text.find("error: "), 0) :].strip()
