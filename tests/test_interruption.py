"""SIGTERM in the middle of work: a checkpoint of the very step, exit code 75, and the same end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from posttrain import interruption
from posttrain.artifacts import content_files, write_rows
from posttrain.errors import ConfigError, Fault, TransientError
from posttrain.journal import Journal
from posttrain.records import Demonstration, Preference, Prompt

SPENT = ConfigError(Fault("budget spent", "here", "it is gone", "give more"))
Seal = Callable[[Path, str], object]


@pytest.fixture
def listening() -> Iterator[None]:
    with interruption.listening():
        yield


def slept(seconds: float) -> float:
    began = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - began


def test_a_stage_at_work_is_asked_and_raises_where_it_pauses(
    listening: None, journal: Journal
) -> None:
    with interruption.at_work():
        journal.pause()
        assert not journal.stopping
        os.kill(os.getpid(), signal.SIGTERM)
        assert journal.stopping
        with pytest.raises(TransientError, match="preempted"):
            journal.pause()


def test_a_second_sigterm_raises_at_once(listening: None) -> None:
    with interruption.at_work():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(TransientError, match="preempted"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_with_nothing_at_work_it_is_raised_at_once(listening: None) -> None:
    with pytest.raises(TransientError, match="preempted"):
        os.kill(os.getpid(), signal.SIGTERM)


def test_after_the_grace_it_is_raised_where_the_stage_stands(listening: None) -> None:
    """Asked by another thread, as the budget does; the first of two errors counts."""
    began = time.monotonic()
    with interruption.at_work():
        threading.Thread(target=interruption.ask, args=(SPENT, 0.2)).start()
        with pytest.raises(ConfigError, match="budget spent"):
            slept(20)
        interruption.ask(interruption.PREEMPTED)
        assert interruption.asked() is SPENT
    assert 0.2 <= time.monotonic() - began < 10


def test_what_was_asked_is_forgotten_at_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruption.listening(), interruption.at_work():
        interruption.ask(SPENT, 0.05)
    slept(0.1)
    assert interruption.asked() is None
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_swallows_the_error_is_ended() -> None:
    script = (
        "import time; from posttrain import interruption as i; i.LAST_SECONDS = 0.3\n"
        "with i.listening(), i.at_work():\n"
        "    i.ask(i.PREEMPTED, 0.1)\n"
        "    while True:\n"
        "        try: time.sleep(9)\n"
        "        except Exception: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 75
    assert b"preempted" in done.stderr


SMALL = {"max_steps": 150, "batch_size": 2, "checkpoint_every": 1000, "log_every": 7}
STAGES: dict[str, tuple[dict[str, object], str, str]] = {
    "sft": (SMALL | {"eval_share": 0}, "trained", r"checkpoint-(\d+)$"),
    "reward_model": (SMALL | {"min_accuracy": 0}, "judge", r"checkpoint-(\d+)$"),
    "rl": (
        {
            "steps": 60,
            "prompts_per_step": 2,
            "group_size": 2,
            "max_new_tokens": 6,
            "checkpoint_every": 1000,
            "kl_coefficient": 0.01,
        },
        "trained",
        r"^checkpoint-(\d+)$",
    ),
    "best_of_n": (
        {"chunk": 1, "n_max": 2, "max_new_tokens": 6, "resamples": 100},
        "scores",
        r"samples-(\d+)\.jsonl$",
    ),
}
"""Options, output, and the name of a checkpoint; in training none falls due before the end."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, seal: Seal, tiny_policy: Path) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    texts = [(f"p{i}", f"What is {i} + 2?", str(i + 2)) for i in range(30)]
    about = {"task": "arithmetic", "source": "t"}
    write_rows(folder / "prompts", [Prompt(id=i, text=q, answer=a, **about) for i, q, a in texts])
    shown = [
        Demonstration(id=i, prompt_id=i, prompt=q, response=f"#### {a}", reward=1.0, source="t")
        for i, q, a in texts
    ]
    write_rows(folder / "demonstrations", shown)
    pairs = [
        Preference(id=i, prompt_id=i, prompt=q, chosen=a, rejected="no", source="t")
        for i, q, a in texts
    ]
    write_rows(folder / "preferences", pairs)
    for name in ("prompts", "demonstrations", "preferences"):
        seal(folder / name, name.removesuffix("s").capitalize())
    (folder / "policy").symlink_to(tiny_policy)
    return folder


PORTS: Mapping[str, Mapping[str, str]] = {
    "sft": {"policy": "policy", "demonstrations": "demonstrations"},
    "reward_model": {"policy": "policy", "preferences": "preferences"},
    "rl": {"policy": "policy", "prompts": "prompts"},
    "best_of_n": {"policy": "policy", "evaluation": "prompts"},
}


def start(stage: str, home: Path, inputs: Path) -> "subprocess.Popen[str]":
    options, output, _ = STAGES[stage]
    argv = [sys.executable, "-m", "posttrain.cli", stage, "--tracking", "off"]
    for port, name in PORTS[stage].items():
        argv += [f"--{port}", str(inputs / name)]
    argv += [f"--{output}", str(home / output), "--store", str(home / "store")]
    argv += ["--run-folder", str(home / "run"), "--overrides", json.dumps({stage: options})]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_preempted_stage_keeps_its_step_and_ends_the_same(
    stage: str, inputs: Path, tmp_path: Path
) -> None:
    _, output, pattern = STAGES[stage]
    whole = start(stage, tmp_path / "whole", inputs)
    process = start(stage, tmp_path / "torn", inputs)
    work = tmp_path / "torn" / "store" / "work"
    begun = "samples-*" if stage == "best_of_n" else "curves.jsonl"
    where = work if stage == "best_of_n" else tmp_path / "torn" / "run"
    deadline = time.monotonic() + 120
    while not [*where.rglob(begun)] and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 75, told
    assert "preempted" in told
    assert time.monotonic() - asked < interruption.GRACE_SECONDS
    assert not (tmp_path / "torn" / output).exists()
    kept = [int(m[1]) for p in work.rglob("*") if (m := re.search(pattern, p.name))]
    assert kept, "no checkpoint"
    assert max(kept) < {"rl": 60, "best_of_n": 29}.get(stage, 150), "it was over before"
    again = start(stage, tmp_path / "torn", inputs)
    for process in (whole, again):
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    assert content_files(tmp_path / "torn" / output) == content_files(tmp_path / "whole" / output)
