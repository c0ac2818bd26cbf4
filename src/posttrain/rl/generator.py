"""A generator: a process of its own that writes responses while the trainer goes on training.

It answers tickets in their order, each with the newest weights that the trainer has published, and
keeps nothing that would be lost with it. Messages are JSON over a pipe: tickets one way; answers,
faults and a sign of life every second the other way. It ends when its trainer does.
"""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from posttrain.errors import ConfigError, DataError, Fault, PosttrainError, TransientError
from posttrain.records import Prompt
from posttrain.rl.published import take_newest
from posttrain.rl.rollout import Group, Rollout, kept, revived
from posttrain.rl.strategies import Ask

if TYPE_CHECKING:
    from posttrain.rl.explorer import Player

BEAT_SECONDS = 1.0
LOADING_SECONDS = 300.0
"""How long it may be silent until it has loaded its policy: the import of a library can hold up
every thread."""

CREW = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""What would make the process take itself for one of the trainers."""

PASSED_ON: dict[str, type[PosttrainError]] = {
    error.__name__: error for error in (ConfigError, DataError, TransientError)
}


class Ticket(NamedTuple):
    """Asks to answer together, with weights of version `least` or newer; `shown`: the
    demonstrations of their prompts."""

    number: int
    least: int
    asks: list[Ask]
    shown: Mapping[str, Rollout]

    def encoded(self) -> bytes:
        """As a message; a prompt is told once."""
        prompts = {ask.prompt.id: ask.prompt.model_dump(mode="json") for ask in self.asks}
        asks = [[ask.prompt.id, ask.seed, ask.place] for ask in self.asks]
        shown = {key: rollout.state() for key, rollout in self.shown.items()}
        return json.dumps([self.number, self.least, prompts, asks, shown]).encode()

    @classmethod
    def decoded(cls, message: bytes) -> Self:
        """What `encoded` was called on."""
        number, least, given, asked, shown = json.loads(message)
        prompts = {key: Prompt.model_validate(prompt) for key, prompt in given.items()}
        asks = [Ask(prompts[key], seed, None, place) for key, seed, place in asked]
        return cls(number, least, asks, {k: Rollout.restored(each) for k, each in shown.items()})


class Answer(NamedTuple):
    """The responses to a ticket, by weights of `version`, after `idle` seconds without one."""

    number: int
    version: int
    idle: float
    rollouts: Group


class Job(NamedTuple):
    """What a generator is started with: the stage's config as JSON, the folders of the policy and
    of what is published, and torch's threads."""

    config: str
    policy: str
    published: str
    threads: int


class Generator:
    """The trainer's end; threads of its own carry the messages, so that neither side waits."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, job), name="generator", daemon=True
        )
        self._process.start()
        # Else the end of the process would not be the end of the pipe.
        theirs.close()
        self._inbox: Queue[list[Any] | None] = Queue()
        self._outbox: Queue[bytes | None] = Queue()
        self._heard, self._loaded, self._ended = time.monotonic(), False, False
        self._carriers = [
            Thread(target=carrier, daemon=True) for carrier in (self._hear, self._tell)
        ]
        for carrier in self._carriers:
            carrier.start()

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._process.pid

    def ask(self, ticket: Ticket) -> None:
        """Put a ticket at the end of its queue."""
        self._outbox.put(ticket.encoded())

    def answer(self, seconds: float) -> Answer | None:
        """The next answer if there is one within that time; raises what went wrong over there."""
        try:
            message = self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
        except Empty:
            return None
        if message is None:
            self._ended = True
            return None
        kind, *told = message
        if kind == "fault":
            name, faults = told
            raise PASSED_ON[name](*(Fault(*fault) for fault in faults))
        number, version, idle, rollouts = told
        return Answer(number, version, idle, revived(rollouts))

    def lost(self, hung_seconds: float, since: float) -> str:
        """Why nothing more will come, if so; only silence after `since` counts."""
        if self._ended:
            self._process.join(BEAT_SECONDS)
            return f"its process {self.pid} ended with exit code {self._process.exitcode}"
        allowed = hung_seconds if self._loaded else max(hung_seconds, LOADING_SECONDS)
        silent = time.monotonic() - max(self._heard, since)
        if silent > allowed:
            return f"its process {self.pid} gave no sign of life for {silent:.1f} s"
        return ""

    def close(self) -> None:
        """End the process at once: nothing in it is needed."""
        self._process.kill()
        self._process.join()
        self._outbox.put(None)
        for carrier in self._carriers:
            carrier.join(BEAT_SECONDS)
        self._pipe.close()

    def _hear(self) -> None:
        try:
            while True:
                message = json.loads(self._pipe.recv_bytes())
                self._heard = time.monotonic()
                self._loaded |= message[0] != "loading"
                if message[0] in ("answer", "fault"):
                    self._inbox.put(message)
        except (OSError, EOFError):
            self._inbox.put(None)

    def _tell(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                self._pipe.send_bytes(message)
        except OSError:
            # The process is gone: whoever waits for an answer learns of it by `_hear`.
            return


def serve(pipe: Connection, job: Job) -> None:
    """The body of the process: answer tickets until the trainer hangs up."""
    # Ctrl-C and a machine that goes are the trainer's to handle; it takes its generator down.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for name in CREW:
        os.environ.pop(name, None)
    lock, loaded = Lock(), Event()

    def send(message: list[Any]) -> None:
        with lock:
            pipe.send_bytes(json.dumps(message).encode())

    Thread(target=beat, args=(send, loaded), daemon=True).start()
    try:
        play = player(job)
        loaded.set()
        for ticket, idle in tickets(pipe):
            version, rollouts = play(ticket)
            send(["answer", ticket.number, version, idle, kept(rollouts)])
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except tuple(PASSED_ON.values()) as error:
        send(["fault", type(error).__name__, [astuple(fault) for fault in error.faults]])


def beat(send: Callable[[list[Any]], None], loaded: Event) -> None:
    """Give a sign of life every second; without its trainer the process ends where it is."""
    trainer = multiprocessing.parent_process()
    try:
        while trainer and not wait([trainer.sentinel], BEAT_SECONDS):
            send(["ready" if loaded.is_set() else "loading"])
    finally:
        os._exit(1)


def tickets(pipe: Connection) -> Iterator[tuple[Ticket, float]]:
    """Each ticket, and how many seconds went by without one."""
    while True:
        began = time.monotonic()
        message = pipe.recv_bytes()
        yield Ticket.decoded(message), time.monotonic() - began


def player(job: Job) -> Callable[[Ticket], tuple[int, Group]]:
    """Load the policy and what the config names; answers a ticket with the version it used."""
    import torch

    from posttrain.rl.adapters import load_trainee
    from posttrain.rl.config import RLConfig

    torch.set_num_threads(job.threads)
    config = RLConfig.model_validate_json(job.config)
    trainee = load_trainee(Path(job.policy), config)
    seat = seated(config, trainee.policy)
    held = -1

    def answered(ticket: Ticket) -> tuple[int, Group]:
        nonlocal held
        held = take_newest(trainee.whole, Path(job.published), ticket.least, held)
        play = partial(seat.play, step=held)
        return held, tuple(seat.strategy(play, ticket.asks, ticket.shown))

    return answered


def seated(config: Any, policy: Any) -> "Player":
    """What plays on this policy as the trainer's explorer would."""
    from posttrain.engines import ENGINES
    from posttrain.plugins import build
    from posttrain.rl.environments import ENVIRONMENTS
    from posttrain.rl.explorer import Player
    from posttrain.rl.precisions import PRECISIONS
    from posttrain.rl.schedules import TURNS
    from posttrain.rl.strategies import ROLLOUT_STRATEGIES

    return Player(
        config,
        build(ENGINES, config.engine, "rl.engine")(policy),
        policy.tokenizer,
        strategy=build(ROLLOUT_STRATEGIES, config.strategy, "rl.strategy"),
        environment=build(ENVIRONMENTS, config.environment, "rl.environment")(),
        turns=build(TURNS, config.turns, "rl.turns"),
        precision=partial(
            build(PRECISIONS, config.precision, "rl.precision"), policy.model, "rollout"
        ),
    )
