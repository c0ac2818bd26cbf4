"""A run folder in the words of `Run` and `Task`: from its account of attempts, records and logs.

It serves for a run on this machine, and on a cluster from any pod that mounts the store.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posttrain.check import GRAPHS
from posttrain.cluster import OVER, Run, State, Task
from posttrain.costs.attempts import Attempt, attempts
from posttrain.errors import ConfigError, Fault

POLL_SECONDS = 0.5
PREEMPTED = 75


def run_of(folder: Path) -> Run:
    """The tasks of the last launch; ConfigError for a folder in which nothing has run."""
    found = attempts(folder)
    launch = read_object(folder / "launch.json")
    since = launch.get("started", 0.0)
    current = [a for a in found if a.started >= since]
    if not found and not launch:
        mend = "give a run folder, such as runs/demo, or name a cluster with --to"
        raise ConfigError(Fault("no run", str(folder), "nothing has run there", mend))
    by_task: dict[str, list[Attempt]] = {}
    for attempt in current:
        by_task.setdefault(attempt.task, []).append(attempt)
    reasons = {
        task: read_object(folder / "stages" / f"{task}.json").get("reason", "") for task in by_task
    }
    told = [task_of_attempts(task, own, reasons[task]) for task, own in by_task.items()]
    waiting = [t for t in GRAPHS.get(launch.get("graph", ""), ()) if t not in by_task]
    told += [Task(task, "pending") for task in waiting]
    return Run(folder.name, state_of(told), "", told, str(folder))


def task_of_attempts(task: str, own: Sequence[Attempt], reason: str) -> Task:
    """A task from its attempts, oldest first."""
    now, last = time.time(), own[-1]
    words: dict[str, State] = {"working": "running", "done": "done", "cached": "cached"}
    state = words.get(last.state, "stopped" if last.code == PREEMPTED else "failed")
    if last.lost(now):
        state, reason = "stopped", "its process is gone without a word; run it again to go on"
    elif state in ("failed", "stopped"):
        reason = f"see `posttrain logs RUN {task}`"
    elif state == "running":
        reason = ""
    end = now if state == "running" else last.updated
    failed = sum(a.state == "failed" or a.lost(now) for a in own[:-1])
    return Task(task, state, end - last.started, failed, last.code, reason)


def state_of(tasks: Sequence[Task]) -> State:
    """The state of a run whose tasks are in these."""
    states = {task.state for task in tasks}
    for state in ("running", "failed", "stopped", "pending"):
        if state in states:
            return state
    return "cached" if states == {"cached"} else "done"


def lines_of(folder: Path, task: str, *, follow: bool) -> Iterator[str]:
    """What a task printed under `posttrain run`; with `follow`, until it is over."""
    path = folder / "logs" / f"{task}.log"
    if not path.is_file():
        why = "tasks have logs where `posttrain run` started them; on a cluster ask with --to"
        raise ConfigError(Fault(f"no log of `{task}`", str(path), why, "name another task"))
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            # Asked before reading: what a task wrote before it ended is read after that.
            over = not follow or run_is_over(folder, task)
            for line in log:
                yield line.rstrip("\n")
            if over:
                return
            time.sleep(POLL_SECONDS)


def run_is_over(folder: Path, task: str) -> bool:
    """Whether nothing more will be written by the task's process."""
    return all(t.state in OVER for t in run_of(folder).tasks if t.name == task)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
