"""The tasks of the graphs with next to no work in them, and how to run one in a forked process."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.faults import Fault, Gauge, inject, told

SECONDS = 120.0
GRACE_SECONDS = 15.0

OVERRIDES: dict[str, Any] = {
    "raw": {
        "sources": [
            {
                "name": "procedural",
                "task": "arithmetic",
                "demonstrations": 30,
                "preferences": 60,
                "prompts": 20,
                "evaluation": 24,
            }
        ]
    },
    "curate": {"shard_bytes": 8192, "workers": 1},
    "select": {"selectors": [{"name": "first", "n": 8}]},
    "sft": {"max_steps": 6, "batch_size": 4, "checkpoint_every": 4, "log_every": 4},
    "reward_model": {"max_steps": 6, "batch_size": 4, "checkpoint_every": 4, "log_every": 4},
    "reject": {"max_prompts": 6, "chunk": 2, "samples": 2, "max_new_tokens": 8},
    "rl": {"steps": 4, "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8},
    "best_of_n": {"limit": 6, "chunk": 2, "max_new_tokens": 6, "resamples": 100},
    "benchmark": {
        "suites": [{"name": "arithmetic", "limit": 6}, {"name": "countdown", "limit": 4}],
        "chunk": 2,
        "max_new_tokens": 6,
    },
    "gate": {"min_items": 2, "resamples": 100, "registry_uri": ""},
}


class Task(NamedTuple):
    """A task: its stage, the ports of other tasks that it reads, its outputs, more overrides."""

    stage: str
    inputs: Mapping[str, str | tuple[str, ...]]
    outputs: tuple[str, ...]
    overrides: Mapping[str, Any] = {}


CURATED = ("prompts", "demonstrations", "preferences", "evaluation")
TASKS: dict[str, Task] = {
    "raw": Task("raw", {}, ("rows",)),
    "base": Task("base", {}, ("policy",)),
    "curate": Task("curate", {"rows": "raw.rows"}, CURATED),
    "curate_learn": Task("curate_learn", {"rows": "raw.rows"}, ("evaluation",)),
    "curate_map": Task(
        "curate_map",
        {"rows": "raw.rows", "evaluation": "curate_learn.evaluation"},
        ("finished",),
    ),
    "curate_reduce": Task(
        "curate_reduce", {"rows": "raw.rows", "finished": ("curate_map.finished",)}, CURATED
    ),
    "select": Task("select", {"curated": "curate.prompts"}, ("selected",)),
    "sft": Task(
        "sft", {"policy": "base.policy", "demonstrations": "curate.demonstrations"}, ("trained",)
    ),
    "reward_model": Task(
        "reward_model", {"policy": "sft.trained", "preferences": "curate.preferences"}, ("judge",)
    ),
    "judge": Task("judge", {}, ("judge",)),
    "reject": Task(
        "reject",
        {"policy": "sft.trained", "prompts": "curate.prompts", "judge": "reward_model.judge"},
        ("demonstrations",),
        {"allow_failed_judge": True},
    ),
    "rl": Task("rl", {"policy": "sft.trained", "prompts": "curate.prompts"}, ("trained",)),
    "best_of_n": Task(
        "best_of_n",
        {
            "policy": "rl.trained",
            "evaluation": "curate.evaluation",
            "judge": "reward_model.judge",
        },
        ("scores",),
        {"allow_failed_judge": True},
    ),
    "benchmark": Task(
        "benchmark", {"policy": "rl.trained", "evaluation": "curate.evaluation"}, ("scores",)
    ),
    "gate": Task(
        "gate",
        {
            "challenger": "benchmark.scores",
            "champion": "benchmark.scores",
            "policy": "rl.trained",
        },
        ("verdict",),
    ),
    "report": Task(
        "report",
        {"inputs": ("raw.rows", "curate.prompts", "sft.trained", "rl.trained", "benchmark.scores")},
        ("page",),
    ),
}


def command(name: str, home: Path, inputs: Path) -> list[str]:
    """The command line of a task that writes under `home` and reads what stands under `inputs`."""
    task = TASKS[name]
    overrides = dict(OVERRIDES)
    own = dict(task.overrides)
    if name == "judge":
        own["folder"] = str(inputs / "reward_model" / "out" / "judge")
    overrides[task.stage] = {**overrides.get(task.stage, {}), **own}
    argv = [task.stage, "--recipe", "smoke", "--overrides", json.dumps(overrides)]
    for port, source in task.inputs.items():
        several = (source,) if isinstance(source, str) else source
        argv += [f"--{port.replace('_', '-')}"]
        argv += [str(inputs / each.replace(".", "/out/")) for each in several]
    for port in task.outputs:
        argv += [f"--{port.replace('_', '-')}", str(home / "out" / port)]
    argv += ["--store", str(home / "store"), "--run-folder", str(home / "run")]
    return [*argv, "--tracking", "off", "--seed", "3"]


class Ended(NamedTuple):
    """How a process ended: its exit code (negative: the signal), what it told, how long it took
    since it was asked to stop (or began), and how often it called what."""

    code: int
    told: str
    seconds: float
    counts: dict[str, int]


def run(name: str, home: Path, inputs: Path, fault: Fault = Fault("", "", 0)) -> Ended:
    """Run a task in a forked process that suffers a fault; it is killed after `SECONDS`."""
    for folder in ("out", "store", "run"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    log, counted = home.with_suffix(".log"), home.with_suffix(".counts")
    counted.unlink(missing_ok=True)
    argv = command(name, home, inputs)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        work(argv, home, fault, log, counted)
    code = awaited(child, fault, began + SECONDS)
    counts = json.loads(counted.read_text()) if counted.is_file() else {}
    return Ended(code, log.read_text(errors="replace"), time.monotonic() - began, counts)


def work(argv: list[str], home: Path, fault: Fault, log: Path, counted: Path) -> None:
    """The body of the child: the real command line, patched; it never returns."""
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ["POSTTRAIN_GRACE_SECONDS"] = str(GRACE_SECONDS)
        gauge: Gauge = inject(fault, home)
        from posttrain.cli import main

        try:
            code = main(argv)
        finally:
            counted.write_text(told(gauge))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def awaited(child: int, fault: Fault, deadline: float) -> int:
    """The exit code of the child; one that is stopped is killed, or goes on after a while."""
    while True:
        found, status = os.waitpid(child, os.WUNTRACED | os.WNOHANG)
        if found and os.WIFSTOPPED(status):
            time.sleep(0.05)
            os.kill(child, signal.SIGCONT if fault.kind == "freeze" else signal.SIGKILL)
        elif found:
            return os.waitstatus_to_exitcode(status)
        elif time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        else:
            time.sleep(0.01)
