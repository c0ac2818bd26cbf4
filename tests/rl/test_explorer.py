"""The explorer: prompts in, scored groups out, the same ones whoever asks and however often."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.engines import Completion, Request, Sampling, Until
from posttrain.engines.transformers import TransformersEngine
from posttrain.policies import Policy, load_policy
from posttrain.records import Prompt
from posttrain.rl.environments import SingleTurn
from posttrain.rl.explorer import Explorer, unfinished
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.strategies import Ask, external

Make = Callable[..., Explorer]
PROMPTS = [
    Prompt(id=str(i), text=f"{i} + 1?", answer="1", task="arithmetic", source="test")
    for i in range(6)
]
SMALL: dict[str, Any] = {"max_new_tokens": 12, "group_size": 3}


@pytest.fixture(scope="module")
def policy(tiny_policy: Path) -> Policy:
    return load_policy(tiny_policy)


@pytest.fixture
def engine(policy: Policy) -> TransformersEngine:
    """One for which an eighth of the tokens end a response."""
    engine = TransformersEngine(policy)
    engine.stop_ids = frozenset(range(0, len(policy.tokenizer), 8))
    return engine


def test_groups_have_their_prompts_and_size(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    explorer = explorer_of(engine, policy.tokenizer, PROMPTS, **SMALL)
    groups = explorer.groups(2, 0, 4)
    assert [[r.prompt.id for r in group] for group in groups] == [[str(i)] * 3 for i in range(4)]
    for rollout in (rollout for group in groups for rollout in group):
        assert rollout.versions == (2,) * len(rollout.tokens)
        assert (rollout.source, rollout.turns, rollout.acted) == ("fresh", 1, ())
        assert rollout.reward_parts == {"test": rollout.reward}
    assert {key: stats.count for key, stats in explorer.pool.stats.items()} == dict.fromkeys(
        "0123", 3
    )
    assert explorer.pool.draws == 1


def test_seeds_depend_on_the_place_and_the_configs_seed(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    def drawn(step: int, attempt: int, **options: Any) -> list[tuple[int, ...]]:
        explorer = explorer_of(engine, policy.tokenizer, PROMPTS[:1], **SMALL | options)
        return [r.tokens for group in explorer.groups(step, attempt, 2) for r in group]

    one = drawn(0, 0)
    assert one == drawn(0, 0)
    assert len(set(one)) == 6
    others = (drawn(1, 0), drawn(0, 1), drawn(0, 0, seed=9))
    assert all(set(one).isdisjoint(other) for other in others)


def test_a_budget_in_rounds_continues_the_groups(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    """Prompt 0 wants a second look; the first looks are those of a budget in one round."""

    def two_rounds(groups: Sequence[Group], group_size: int, /) -> list[int]:
        return [
            (2 if not group else 4 - len(group)) if at == 0 else 2 - len(group)
            for at, group in enumerate(groups)
        ]

    def once(groups: Sequence[Group], group_size: int, /) -> list[int]:
        return [(4 if at == 0 else 2) - len(group) for at, group in enumerate(groups)]

    found = [
        explorer_of(engine, policy.tokenizer, PROMPTS, budget=budget, **SMALL).groups(0, 0, 2)
        for budget in (two_rounds, once)
    ]
    tokens = [[[r.tokens for r in group] for group in groups] for groups in found]
    assert [len(group) for group in found[0]] == [4, 2]
    assert tokens[0] == tokens[1]


def test_demonstrations_teach_the_pool_nothing(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    shown = Rollout(PROMPTS[0], "1", (9,), (0.0,), truncated=False, source="external")
    explorer = explorer_of(
        engine, policy.tokenizer, PROMPTS, strategy=external, demonstrations={"0": shown}, **SMALL
    )
    first, second = explorer.groups(0, 0, 2)
    assert [r.source for r in (*first, *second)] == ["external"] + ["fresh"] * 5
    assert math.isfinite(first[0].reward)
    assert [explorer.pool.stats[key].count for key in "01"] == [2, 3]


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_response_that_was_begun_is_finished_as_it_would_have_been(
    explorer_of: Make, engine: TransformersEngine, policy: Policy, cut: int
) -> None:
    explorer = explorer_of(engine, policy.tokenizer, PROMPTS, **SMALL)
    asks = [Ask(prompt, seed) for seed, prompt in enumerate(PROMPTS * 5)]
    whole = explorer.play(asks, step=1)
    long = [at for at, rollout in enumerate(whole) if len(rollout.tokens) > cut]
    assert 1 < len(long) < len(asks)
    begun = {
        at: Rollout(
            whole[at].prompt,
            "",
            whole[at].tokens[:cut],
            whole[at].behaviour_logps[:cut],
            truncated=True,
            versions=(0,) * cut,
        )
        for at in long
    }
    ends = explorer.play([asks[at]._replace(begun=begun[at]) for at in long], step=1)
    for end, rollout in zip(ends, [whole[at] for at in long], strict=True):
        assert end.tokens == rollout.tokens
        assert end.behaviour_logps == pytest.approx(rollout.behaviour_logps, abs=1e-4)
        assert end.versions == (0,) * cut + (1,) * (len(end.tokens) - cut)
        assert (end.source, end.truncated) == ("resumed", rollout.truncated)


def test_until_stops_the_others_where_they_are(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    explorer = explorer_of(engine, policy.tokenizer, PROMPTS, **SMALL)
    asks = [Ask(prompt, seed) for prompt in PROMPTS for seed in range(3)]
    whole = explorer.play(asks, 0)
    part = explorer.play(asks, 0, lambda done: len(done) >= 6)
    least = sorted(len(rollout.tokens) for rollout in whole)[5]
    assert least < 12
    for stopped, full in zip(part, whole, strict=True):
        assert stopped.tokens == full.tokens[:least]
        done = unfinished(stopped, 12)
        assert done.finished == (len(full.tokens) <= least)


def test_a_response_that_nobody_began_is_empty_and_unfinished(
    explorer_of: Make, engine: TransformersEngine, policy: Policy
) -> None:
    """It was in a later batch than those that were enough; begun again, it is fresh."""
    engine.batch = 2
    explorer = explorer_of(engine, policy.tokenizer, PROMPTS, **SMALL)
    asks = [Ask(prompt, 1) for prompt in PROMPTS]
    part = explorer.play(asks, 0, lambda done: bool(done))
    assert [bool(rollout.tokens) for rollout in part] == [True, True] + [False] * 4
    last = unfinished(part[-1], 12)
    assert (last.finished, last.text, last.learnable, last.chunks) == (False, "", 0, [])
    again = explorer.play([Ask(PROMPTS[-1], 1, last)], 1)
    assert again[0].source == "fresh"
    assert again[0].tokens == explorer.play(asks[-1:], 1)[0].tokens


class Scripted:
    """An engine that writes a token a piece and never ends by itself."""

    def __init__(self) -> None:
        self.stops: list[tuple[int, ...]] = []

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        self.stops.append(sampling.stop)
        word = sampling.stop[0] if sampling.stop else 40
        return [Completion("x", (word,), (-0.5,), truncated=not sampling.stop) for _ in requests]


class Chatty(SingleTurn):
    """Answers each piece with a word of two tokens."""

    def stops(self, tokenizer: Any) -> tuple[int, ...]:
        return (30,)

    def observe(self, prompt: Prompt, text: str) -> str | None:
        return "84"


def test_turns_and_words_are_noted_where_they_belong(explorer_of: Make, policy: Policy) -> None:
    engine = Scripted()
    explorer = explorer_of(
        engine, policy.tokenizer, PROMPTS, environment=Chatty(), turns=lambda _step: 3
    )
    (rollout,) = explorer.play([Ask(PROMPTS[0], 0)], step=4)
    assert engine.stops == [(30,), (30,), ()]
    assert rollout.acted == (True, False, False, True, False, False, True)
    assert rollout.behaviour_logps == (-0.5, 0, 0, -0.5, 0, 0, -0.5)
    assert rollout.versions == (4,) * 7
    assert (rollout.turns, rollout.truncated, rollout.learnable) == (3, True, 3)
    assert rollout.chunks == [range(1), range(3, 4), range(6, 7)]


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 6])
def test_a_word_is_cut_where_the_room_ends(explorer_of: Make, policy: Policy, room: int) -> None:
    explorer = explorer_of(
        Scripted(), policy.tokenizer, PROMPTS, environment=Chatty(), max_new_tokens=room
    )
    (rollout,) = explorer.play([Ask(PROMPTS[0], 0)], step=0)
    assert len(rollout.tokens) == room
    assert rollout.truncated
    assert unfinished(rollout, room).finished
