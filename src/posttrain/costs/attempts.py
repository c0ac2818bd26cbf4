"""One file for each process that works on a task, written again every few seconds.

A file of its own has one writer, so that pods which share the run folder over a network file
system need no lock; and a process that is killed outright has told of all but its last seconds.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from posttrain.artifacts import write_json

FOLDER = "costs"
BEAT_SECONDS = 5.0
LOST_AFTER_SECONDS = 60.0
"""A file of a working process that was not renewed for so long has lost its process: clocks of
two machines differ, and a network file system is slow at times."""

State = Literal["working", "done", "cached", "failed"]


class Attempt(BaseModel):
    """What one process spent on a task until `updated`; Unix times, seconds.

    `resources` are held, used or not. `saved_seconds`: work that the store made unnecessary.
    `tokens` and `judge_money` are known once the stage is done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    stage: str
    place: str
    started: float
    updated: float
    accelerators: int
    kind: str
    cores: float
    state: State = "working"
    code: int | None = None
    generated_tokens: int = 0
    trained_tokens: int = 0
    server_tokens: int = 0
    judge_money: float = 0.0
    saved_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the process has held its resources."""
        return max(0.0, self.updated - self.started)

    def lost(self, now: float) -> bool:
        """Whether its process is gone without a word."""
        return self.state == "working" and now - self.updated > LOST_AFTER_SECONDS


def begun(task: str, stage: str, accelerators: int, kind: str, cores: float) -> Attempt:
    """The account of this process, opened now."""
    now = time.time()
    place = f"{socket.gethostname()}-{os.getpid()}"
    return Attempt(
        task=task,
        stage=stage,
        place=place,
        started=now,
        updated=now,
        accelerators=accelerators,
        kind=kind,
        cores=cores,
    )


def keep(run_folder: Path, attempt: Attempt) -> None:
    """Write an attempt, so that a reader sees the old file or the new one."""
    name = f"{attempt.task}-{attempt.place}-{int(attempt.started * 1000)}.json"
    write_json(run_folder / FOLDER / name, attempt.model_dump(mode="json"))


def attempts(run_folder: Path) -> list[Attempt]:
    """Every attempt on every task of a run, by start."""
    return sorted(_read(run_folder / FOLDER), key=lambda attempt: attempt.started)


def _read(folder: Path) -> Iterator[Attempt]:
    for path in folder.glob("[!.]*.json"):
        try:
            yield Attempt.model_validate_json(path.read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError):
            continue  # of another version, or being replaced on a file system without rename
