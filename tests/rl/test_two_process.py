"""A generator in a process of its own: the same bits, nothing too old, nothing lost."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path
from threading import Event, Thread
from typing import Any, NoReturn

import psutil
import pytest

from posttrain.artifacts import content_files, write_rows
from posttrain.engines import ENGINES
from posttrain.errors import TransientError
from posttrain.journal import Journal, read_curves
from posttrain.records import Prompt
from posttrain.rewards import REWARDS
from posttrain.rl.checkpoint import load_checkpoint
from posttrain.rl.config import RLConfig
from posttrain.rl.rollout import Rollout
from posttrain.rl.stage import RLReport, run

SMALL: dict[str, Any] = {
    "steps": 3,
    "prompts_per_step": 2,
    "group_size": 3,
    "max_new_tokens": 8,
    "learning_rate": 1e-2,
    "rewards": ["low_tokens"],
    "checkpoint_every": 1,
}
Train = Callable[..., RLReport]


class KilledError(Exception):
    """Stands for SIGKILL."""


class FatefulJournal(Journal):
    """Does what is in store for a step when it is told of it, once."""

    fates: dict[int, Callable[[], None]]

    def log(self, step: int, **metrics: float) -> None:
        fate = self.fates.pop(step, None)
        if fate:
            fate()
        super().log(step, **metrics)


def die() -> None:
    raise KilledError


def low_tokens(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """The share of tokens with ids below 384."""
    return [sum(t < 384 for t in r.tokens) / max(1, len(r.tokens)) for r in rollouts]


@pytest.fixture
def train(tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Train]:
    monkeypatch.setitem(REWARDS, "low_tokens", low_tokens)
    prompts = [
        Prompt(id=str(i), text=f"{i} + 2 =", answer="1", task="arithmetic", source="test")
        for i in range(9)
    ]
    write_rows(tmp_path / "prompts", prompts)

    def training(name: str, journal: Journal | None = None, **options: Any) -> RLReport:
        return run(
            RLConfig.model_validate(SMALL | options),
            policy=tiny_policy,
            prompts=tmp_path / "prompts",
            trained=tmp_path / name / "trained",
            journal=journal or Journal(tmp_path / name / "journal"),
        )

    yield training
    assert not active_children()


def curve(folder: Path, name: str) -> list[float]:
    return [p.value for p in read_curves(folder / "journal/curves.jsonl") if p.name == name]


def generators() -> list[psutil.Process]:
    """The processes of this one's generators, asked without reaping them."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline())
    ]


def test_whoever_dies_at_eta_0_the_bits_are_those_of_synchronous(
    train: Train, tmp_path: Path
) -> None:
    """The generator hangs in step 2, the trainer dies in step 3, the generator in step 4."""
    options = {"steps": 5, "max_draws": 2, "budget": {"name": "dars", "most": 5}}
    expected = train("sync", **options)
    journal = FatefulJournal(tmp_path / "two/journal")

    def stop() -> None:
        generators()[0].suspend()

    def kill_at_work() -> None:
        (own,) = generators()

        def once_it_is_asked() -> None:
            while not (journal.scratch / "generator/00000003.safetensors").exists():
                time.sleep(0.001)
            own.kill()

        Thread(target=once_it_is_asked).start()

    journal.fates = {1: stop, 3: die}
    controller = {"name": "two_process", "eta": 0, "hung_seconds": 3}
    with pytest.raises(KilledError):
        train("two", journal, controller=controller, **options)
    assert not active_children()
    journal.fates = {3: kill_at_work}
    found = train("two", journal, controller=controller, **options)
    assert found == expected
    assert content_files(tmp_path / "two/trained") == content_files(tmp_path / "sync/trained")
    replaced = curve(tmp_path / "two", "generator/replaced")
    # It may have been done with its ticket when the signal came: then the next one finds out.
    assert (replaced[:3], sum(replaced[3:])) == ([0, 1, 0], 1)
    assert not any(curve(tmp_path / "two", "staleness/max"))


def test_at_eta_2_nothing_is_too_old_and_nothing_is_lost(train: Train, tmp_path: Path) -> None:
    """The trainer dies while two batches are on their way: they are asked for again."""
    journal = FatefulJournal(tmp_path / "two/journal")
    journal.fates = {3: die}
    options = {"steps": 6, "controller": {"name": "two_process", "eta": 2}}
    with pytest.raises(KilledError):
        train("two", journal, **options)
    checkpoint = load_checkpoint(journal.scratch)
    assert checkpoint is not None
    left = checkpoint.state["controller"]
    groups = len(left["waiting"]) + sum(len(batch[2]) for batch in left["batches"])
    assert (checkpoint.step, groups) == (2, 2 * 2)
    report = train("two", journal, **options)
    assert (report.generated, report.pending) == (6 * 2 * 3, 0)
    assert report.generated == report.used + sum(report.dropped.values())
    assert "stale" not in report.dropped
    ages = curve(tmp_path / "two", "staleness/max")
    assert len(ages) == 6
    assert 0 < max(ages) <= 2
    assert min(curve(tmp_path / "two", "trainer/idle_seconds")) >= 0


def test_a_generator_that_is_killed_at_eta_2_takes_nothing_with_it(
    train: Train, tmp_path: Path
) -> None:
    """SIGKILL while several steps have open tickets: each is asked again, none counts twice."""
    journal = FatefulJournal(tmp_path / "two/journal")

    def kill() -> None:
        for each in generators():
            each.kill()

    journal.fates = {2: kill, 4: kill}
    report = train("two", journal, steps=6, controller={"name": "two_process", "eta": 2})
    assert (report.generated, report.pending) == (6 * 2 * 3, 0)
    assert report.generated == report.used + sum(report.dropped.values())
    assert sum(curve(tmp_path / "two", "generator/replaced")) >= 1
    assert max(curve(tmp_path / "two", "staleness/max")) <= 2


def test_the_trainer_holds_no_engine(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_policy: object) -> NoReturn:
        raise AssertionError("the generator has one")

    monkeypatch.setitem(ENGINES, "transformers", none)
    assert train("two", steps=2, controller="two_process").generated == 2 * 2 * 3
    with pytest.raises(AssertionError, match="the generator has one"):
        train("sync", steps=2)


def test_a_generator_that_dies_every_time_ends_the_run(train: Train) -> None:
    over = Event()

    def kill_all() -> None:
        while not over.wait(0.02):
            for each in generators():
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    killer = Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(TransientError, match="exit code -9; that was number 2 in") as caught:
            train("two", controller={"name": "two_process", "max_replacements": 1})
    finally:
        over.set()
        killer.join()
    assert caught.value.exit_code == 75


def test_a_generator_outlives_no_trainer() -> None:
    """The trainer is killed while its generator loads."""
    script = (
        "import time\n"
        "from posttrain.rl.generator import Generator, Job\n"
        "print(Generator(Job('{}', '', '', 1)).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout
        generator = psutil.Process(int(trainer.stdout.readline()))
        time.sleep(0.3)
        assert generator.is_running()
        trainer.kill()
    gone, _ = psutil.wait_procs([generator], timeout=5)
    assert gone or generator.status() == psutil.STATUS_ZOMBIE
