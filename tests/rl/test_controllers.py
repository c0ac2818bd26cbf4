"""Controllers on a simulated clock, where a token takes a tick, and on the real engine."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from posttrain.artifacts import content_files, write_rows
from posttrain.engines import Completion, Request, Sampling, Until
from posttrain.engines.transformers import TransformersEngine
from posttrain.journal import Journal, read_curves
from posttrain.policies import load_policy
from posttrain.records import Prompt
from posttrain.rewards import REWARDS
from posttrain.rl.config import RLConfig
from posttrain.rl.controllers import (
    CONTROLLERS,
    Controller,
    PartialRollout,
    Staleness,
    Synchronous,
    capacity,
)
from posttrain.rl.experience import Draw
from posttrain.rl.explorer import Explorer
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.stage import RLReport, run
from posttrain.rl.strategies import external

EMBEDDED = Path(__file__).parents[2] / "src/posttrain/base/tiny"
Make = Callable[..., Explorer]
MAKERS: dict[str, Callable[[], Controller]] = {
    "synchronous": Synchronous,
    "staleness": lambda: Staleness(eta=2, max_concurrent=5),
    "partial_rollout": PartialRollout,
}
ELSEWHERE = {"two_process"}
"""Needs a policy's folder and time, and has a file of its own."""

WORD = 20


class SimulatedEngine:
    """Writes a token a tick; a response is as long as its prompt's text says, in tokens."""

    def __init__(self, end: int) -> None:
        self.end, self.ticks, self.weights = end, 0, 0

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        needs = [int(r.prompt.split("/")[0]) - len(r.written) for r in requests]
        done: list[int] = []
        ticks = 0
        while len(done) < len(requests) and not (until and until(done)):
            ticks += 1
            done += [at for at, need in enumerate(needs) if need == ticks]
        self.ticks += ticks
        found = []
        for need in needs:
            own = min(need, ticks)
            tokens = [WORD] * own if own < need else [WORD] * (own - 1) + [self.end]
            found.append(Completion("", tuple(tokens), (-float(self.weights),) * own, own < need))
        return found

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        room = sampling.max_new_tokens
        return [
            self.resume([Request(prompt, seed, room) for seed in range(sampling.samples)], sampling)
            for prompt in prompts
        ]

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        return [[0.0] for _ in responses]


def prompts_of(lengths: Sequence[int]) -> list[Prompt]:
    """Prompts whose responses are so long."""
    return [
        Prompt(id=str(i), text=f"{n}/{i}", answer="1", task="arithmetic", source="test")
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(EMBEDDED)


@pytest.fixture
def clock(tokenizer: Any) -> SimulatedEngine:
    return SimulatedEngine(tokenizer.eos_token_id)


def test_every_controller_is_tried() -> None:
    assert MAKERS.keys() | ELSEWHERE == CONTROLLERS.keys()


def ids(groups: Sequence[Group]) -> list[str]:
    return [group[0].prompt.id for group in groups]


@pytest.mark.parametrize(
    ("eta", "batch", "version", "accepted", "running", "most", "expected"),
    [(4, 8, 2, 40, 10, 99, 6), (4, 8, 2, 40, 10, 12, 2), (0, 8, 3, 24, 0, 99, 8),
     (0, 8, 3, 32, 0, 99, 0), (2, 8, 0, 0, 0, 99, 24)],
)  # fmt: skip
def test_capacity_by_hand(
    eta: int, batch: int, version: int, accepted: int, running: int, most: int, expected: int
) -> None:
    """min(most - running, (eta + v + 1) B - (accepted + running))."""
    assert capacity(eta, batch, version, accepted, running, most) == expected


@pytest.mark.parametrize("eta", [0, 1, 4])
@pytest.mark.parametrize("most", [0, 3, 5])
def test_nothing_is_older_than_eta(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any, eta: int, most: int
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 7))
    controller = Staleness(eta=eta, max_concurrent=most)
    handed = 0
    for step in range(8):
        draw = controller.collect(explorer, step, 4)
        ages = [step - group[0].version for group in draw.counted]
        assert len(ages) == 4
        assert max(ages) <= eta
        assert draw.metrics["staleness/max"] == max(ages)
        assert draw.metrics["staleness/mean"] == sum(ages) / 4
        assert draw.metrics["queue/length"] == controller.pending()
        handed += 4
    assert most or max(ages) == eta
    assert explorer.pool.cursor == handed + controller.pending()


def test_the_queue_grows_to_eta_batches_and_no_longer(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    """Step 0 draws (eta + 1) B = 12, each later step B = 4; step 2 is the first at full age."""
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 40))
    controller = Staleness(eta=2)
    draws = [controller.collect(explorer, step, 4) for step in range(4)]
    assert [len(draw.generated) for draw in draws] == [12, 4, 4, 4]
    assert [draw.metrics["staleness/mean"] for draw in draws] == [0, 1, 2, 2]
    assert ids([g for draw in draws for g in draw.counted]) == [str(i) for i in range(16)]


def test_what_is_too_old_is_dropped_and_counted(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 40), group_size=2)
    patient, strict = Staleness(eta=2), Staleness(eta=0)
    patient.collect(explorer, 0, 4)
    strict.restore(json.loads(json.dumps(patient.state())))
    draw = strict.collect(explorer, 1, 4)
    assert draw.dropped == {"stale": 8 * 2}
    assert {group[0].version for group in draw.counted} == {1}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("max_draws", [1, 3])
def test_every_rollout_is_accounted_for(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any, name: str, max_draws: int
) -> None:
    def odd(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        """Prompt 3 has no number, prompts 2 and 5 no signal."""
        return [
            float("nan") if r.prompt.id == "3" else float(r.prompt.id not in "25" and at % 2)
            for at, r in enumerate(rollouts)
        ]

    lengths = [2, 9, 4, 3, 12, 5, 2]
    explorer = explorer_of(
        clock,
        tokenizer,
        prompts_of(lengths),
        rewards={"test": odd},
        group_size=2,
        max_draws=max_draws,
    )
    controller = MAKERS[name]()
    sums: Counter[str] = Counter()
    for step in range(6):
        draw = controller.collect(explorer, step, 3)
        assert len(draw.counted) <= 3
        sums["generated"] += sum(map(len, draw.generated))
        sums["handed"] += sum(map(len, draw.counted))
        sums["dropped"] += sum(draw.dropped.values())
        assert sums["generated"] == sums["handed"] + sums["dropped"] + controller.pending()
    assert sums["dropped"] > 0


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("max_draws", [1, 2])
def test_a_restored_controller_goes_on_the_same(
    explorer_of: Make, tokenizer: Any, name: str, max_draws: int
) -> None:
    def fresh() -> tuple[Explorer, Controller]:
        engine = SimulatedEngine(tokenizer.eos_token_id)
        lengths = [3, 10, 2, 7, 30, 4, 2]
        options = {"group_size": 2, "max_draws": max_draws}
        return explorer_of(engine, tokenizer, prompts_of(lengths), **options), MAKERS[name]()

    explorer, controller = fresh()
    for step in range(3):
        controller.collect(explorer, step, 2)
    again, restored = fresh()
    again.pool.restore(json.loads(json.dumps(explorer.pool.state())))
    restored.restore(json.loads(json.dumps(controller.state())))
    for step in range(3, 7):
        assert restored.collect(again, step, 2) == controller.collect(explorer, step, 2)
    assert restored.pending() == controller.pending()


def versions(groups: Sequence[Group]) -> dict[str, tuple[int, ...]]:
    return {rollout.prompt.id: rollout.versions for group in groups for rollout in group}


def test_partial_rollouts_by_hand(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    """Needs 3, 10, 2 and 7 ticks, N 2 of 4: stops at tick 3; 1 and 3 go on first."""
    explorer = explorer_of(clock, tokenizer, prompts_of([3, 10, 2, 7, 20, 20]))
    controller = PartialRollout(over_sampling=2.0)
    first = controller.collect(explorer, 0, 2)
    assert clock.ticks == 3
    assert ids(first.counted) == ["0", "2"]
    buffer = {b.prompt.id: b.responses[0] for b in controller.begun}
    assert {key: len(r.tokens) for key, r in buffer.items()} == {"1": 3, "3": 3}
    assert not any(r.finished for r in buffer.values())
    assert first.metrics == {
        "stale_token_frac": 0.0, "staleness/max": 0.0, "resumed/share": 0.0, "pending": 2.0
    }  # fmt: skip
    clock.weights = 1
    second = controller.collect(explorer, 1, 2)
    assert clock.ticks == 3 + 7
    assert versions(second.counted) == {"1": (0,) * 3 + (1,) * 7, "3": (0,) * 3 + (1,) * 4}
    assert second.counted[0][0].behaviour_logps == (0.0,) * 3 + (-1.0,) * 7
    assert {r.source for group in second.counted for r in group} == {"resumed"}
    assert second.metrics["stale_token_frac"] == pytest.approx(6 / 17)
    assert second.metrics["resumed/share"] == 1
    assert [(b.prompt.id, len(b.responses[0].tokens)) for b in controller.begun] == [
        ("4", 7), ("5", 7),
    ]  # fmt: skip


def test_groups_that_finish_together_wait_and_are_next(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    explorer = explorer_of(clock, tokenizer, prompts_of([3] * 4 + [9] * 4), group_size=2)
    controller = PartialRollout()
    first = controller.collect(explorer, 0, 2)
    assert (ids(first.counted), len(first.generated), controller.pending()) == (["0", "1"], 4, 4)
    second = controller.collect(explorer, 1, 2)
    assert (ids(second.counted), clock.ticks) == (["2", "3"], 3)
    assert second.metrics["stale_token_frac"] == 1
    third = controller.collect(explorer, 2, 1)
    assert (ids(third.counted), clock.ticks) == (["4"], 3 + 9)


def test_no_prompt_is_lost_or_trained_twice_and_fewer_ticks_are_waited(
    explorer_of: Make,
    tokenizer: Any,
) -> None:
    """Of long-tailed lengths, against the barrier; each drawn prompt is in one place at a time."""
    lengths = [2 + (i * 7919 % 5) + 45 * (i % 6 == 3) for i in range(200)]
    engines = [SimulatedEngine(tokenizer.eos_token_id) for _ in range(2)]
    tokens, fractions = [0, 0], []
    for place, controller in enumerate((Synchronous(), PartialRollout())):
        explorer = explorer_of(engines[place], tokenizer, prompts_of(lengths))
        done: list[str] = []
        for step in range(15):
            draw = controller.collect(explorer, step, 4)
            done += ids(draw.counted)
            tokens[place] += sum(len(r.tokens) for group in draw.counted for r in group)
            if isinstance(controller, PartialRollout):
                fractions.append(draw.metrics["stale_token_frac"])
                begun = [group.prompt.id for group in controller.begun]
                everyone = done + begun + ids(controller.waiting)
                assert sorted(everyone, key=int) == [str(i) for i in range(explorer.pool.cursor)]
        finished = done + (ids(controller.waiting) if place else [])
        assert {key: stats.count for key, stats in explorer.pool.stats.items()} == dict.fromkeys(
            finished, 1
        )
        assert len(done) == len(set(done)) == 60
    barrier, april = (e.ticks / count for e, count in zip(engines, tokens, strict=True))
    assert april < 0.7 * barrier
    assert 0 < sum(fractions) / len(fractions) < 0.6


def test_a_group_with_a_demonstration_is_resumed_without_another(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    prompts = prompts_of([9, 4, 9, 4])
    shown = {
        p.id: Rollout(p, "", (WORD,), (0.0,), truncated=False, source="external") for p in prompts
    }
    explorer = explorer_of(
        clock, tokenizer, prompts, demonstrations=shown, strategy=external, group_size=3
    )
    controller = PartialRollout()
    draws = [controller.collect(explorer, step, 2) for step in range(2)]
    assert [ids(draw.counted) for draw in draws] == [["1", "3"], ["0", "2"]]
    for draw in draws:
        for group in draw.counted:
            assert [r.source == "external" for r in group] == [True, False, False]
            assert len(group[1].tokens) == int(group[1].prompt.text.split("/")[0])
    assert draws[1].metrics["resumed/share"] == 1


def test_demonstrations_are_nobodys_pending_completions_and_have_no_age(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    prompts = prompts_of([4] * 40)
    shown = {
        p.id: Rollout(p, "", (WORD,), (0.0,), truncated=False, source="external") for p in prompts
    }
    explorer = explorer_of(
        clock, tokenizer, prompts, demonstrations=shown, strategy=external, group_size=3
    )
    controller = Staleness(eta=1)
    draws = [controller.collect(explorer, step, 2) for step in range(5)]
    assert controller.pending() == 2 * 2
    assert [draw.metrics["staleness/max"] for draw in draws] == [0, 1, 1, 1, 1]
    strict = Staleness(eta=0)
    strict.restore(controller.state())
    assert strict.collect(explorer, 5, 2).dropped == {"stale": 2 * 2}


class HastyEngine(TransformersEngine):
    """An eighth of the tokens end a response, so that rows finish apart."""

    def __init__(self, policy: Any, *, batch: int = 512) -> None:
        super().__init__(policy, batch=batch)
        self.stop_ids = frozenset(range(0, len(policy.tokenizer), 8))


@pytest.mark.parametrize("batch", [8, 512])
def test_partial_rollouts_by_the_real_engine(
    explorer_of: Make, tiny_policy: Path, batch: int
) -> None:
    """While the policy stays the same, a response is the same in however many pieces."""
    policy = load_policy(tiny_policy)
    prompts, options = prompts_of([1] * 40), {"group_size": 2, "max_new_tokens": 24}
    engine = HastyEngine(policy, batch=batch)
    explorer = explorer_of(engine, policy.tokenizer, prompts, **options)
    controller = PartialRollout(over_sampling=2.0)
    draws = [controller.collect(explorer, step, 3) for step in range(6)]
    groups = [group for draw in draws for group in draw.counted]
    rollouts = [rollout for group in groups for rollout in group]
    assert len(groups) == len(set(ids(groups))) == 18
    resumed = [rollout for rollout in rollouts if rollout.source == "resumed"]
    assert any(len(set(rollout.versions)) > 1 for rollout in resumed)
    seeds = {b.seeds for b in controller.begun}
    assert len(seeds) == len(controller.begun)
    for r in rollouts:
        assert r.finished
        assert len(r.tokens) == len(r.versions) == len(r.behaviour_logps)
        assert list(r.versions) == sorted(r.versions)
        assert r.truncated == (r.tokens[-1] not in engine.stop_ids)
    whole = engine.resume(
        [Request(ask.prompt.text, ask.seed, 24) for b in controller.begun for ask in b.asks()],
        Sampling(),
    )
    begun = [ask.begun for b in controller.begun for ask in b.asks()]
    assert begun
    for piece, response in zip(begun, whole, strict=True):
        assert piece is not None
        assert response.tokens[: len(piece.tokens)] == piece.tokens


SMALL: dict[str, Any] = {
    "steps": 3,
    "prompts_per_step": 2,
    "group_size": 3,
    "max_new_tokens": 8,
    "learning_rate": 1e-2,
    "rewards": ["low_tokens"],
    "checkpoint_every": 1,
    "engine": "hasty",
}


class KilledError(Exception):
    """Stands for SIGKILL."""


class MortalJournal(Journal):
    """Dies when it is told of a step."""

    fatal_step = 0

    def log(self, step: int, **metrics: float) -> None:
        if step == self.fatal_step:
            raise KilledError
        super().log(step, **metrics)


def low_tokens(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """The share of tokens with ids below 384."""
    return [sum(t < 384 for t in r.tokens) / max(1, len(r.tokens)) for r in rollouts]


@pytest.fixture
def train(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RLReport]:
    from posttrain.engines import ENGINES

    monkeypatch.setitem(REWARDS, "low_tokens", low_tokens)
    monkeypatch.setitem(ENGINES, "hasty", HastyEngine)
    write_rows(tmp_path / "prompts", prompts_of([1] * 9))

    def training(name: str, journal: Journal | None = None, **options: Any) -> RLReport:
        return run(
            RLConfig.model_validate(SMALL | options),
            policy=tiny_policy,
            prompts=tmp_path / "prompts",
            trained=tmp_path / name / "trained",
            journal=journal or Journal(tmp_path / name / "journal"),
        )

    return training


METRICS = {
    "staleness": {"staleness/mean", "staleness/max", "queue/length"},
    "partial_rollout": {"stale_token_frac", "resumed/share", "pending"},
}
NEUTRAL = [{"name": "staleness", "eta": 0}, {"name": "partial_rollout", "over_sampling": 1.0}]


@pytest.mark.parametrize("controller", NEUTRAL, ids=lambda c: c["name"])
def test_the_neutral_setting_is_the_synchronous_run_bit_for_bit(
    train: Callable[..., RLReport], tmp_path: Path, controller: dict[str, Any]
) -> None:
    assert train("plain") == train("neutral", controller=controller)
    assert content_files(tmp_path / "plain/trained") == content_files(tmp_path / "neutral/trained")


@pytest.mark.parametrize("name", ["staleness", "partial_rollout"])
def test_a_killed_run_ends_in_the_same_bits(
    train: Callable[..., RLReport], tmp_path: Path, name: str
) -> None:
    whole = train("whole", controller=name)
    journal = MortalJournal(tmp_path / "killed/journal")
    journal.fatal_step = 2
    with pytest.raises(KilledError):
        train("killed", journal, controller=name)
    journal.fatal_step = 0
    assert train("killed", journal, controller=name) == whole
    assert content_files(tmp_path / "killed/trained") == content_files(tmp_path / "whole/trained")
    assert whole.generated == whole.used + sum(whole.dropped.values()) + whole.pending
    names = {point.name for point in read_curves(tmp_path / "whole/journal/curves.jsonl")}
    assert METRICS[name] <= names


def test_an_empty_draw_hands_out_nothing(
    explorer_of: Make, clock: SimulatedEngine, tokenizer: Any
) -> None:
    def none(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        return [float("nan")] * len(rollouts)

    explorer = explorer_of(clock, tokenizer, prompts_of([2] * 9), rewards={"test": none})
    for name in MAKERS:
        draw: Draw = MAKERS[name]().collect(explorer, 0, 2)
        assert draw.counted == []
        assert set(draw.dropped) == {"bad_reward"}
