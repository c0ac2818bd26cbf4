"""Strategies return one rollout for each ask, in their order."""

from collections.abc import Mapping, Sequence

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build
from posttrain.records import Prompt
from posttrain.rl.rollout import Rollout
from posttrain.rl.strategies import ROLLOUT_STRATEGIES, Ask

PROMPTS = [
    Prompt(id=key, text=f"{key}?", answer="1", task="arithmetic", source="test") for key in "abc"
]


def written(asks: Sequence[Ask]) -> list[Rollout]:
    """The policy's own: its token is the ask's seed."""
    return [Rollout(ask.prompt, "own", (ask.seed,), (-1.0,), False) for ask in asks]


def asks_of(size: int, prompts: Sequence[Prompt] = PROMPTS) -> list[Ask]:
    return [
        Ask(prompt, 100 * at + place, None, place)
        for at, prompt in enumerate(prompts)
        for place in range(size)
    ]


def shown(*keys: str) -> Mapping[str, Rollout]:
    return {
        p.id: Rollout(p, "shown", (7, 8), (0.0, 0.0), False, source="external")
        for p in PROMPTS
        if p.id in keys
    }


def texts(rollouts: Sequence[Rollout], size: int) -> list[str]:
    initials = "".join(rollout.text[0] for rollout in rollouts)
    return [initials[at : at + size] for at in range(0, len(initials), size)]


@pytest.mark.parametrize("name", ROLLOUT_STRATEGIES)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_without_demonstrations_every_response_is_the_policys(name: str, size: int) -> None:
    assert ROLLOUT_STRATEGIES[name](written, asks_of(size), {}) == written(asks_of(size))
    assert ROLLOUT_STRATEGIES[name](written, [], shown("a")) == []


@pytest.mark.parametrize("name", ROLLOUT_STRATEGIES)
def test_each_rollout_answers_its_ask(name: str) -> None:
    asks = asks_of(3)
    found = ROLLOUT_STRATEGIES[name](written, asks, shown("a", "c"))
    assert [r.prompt.id for r in found] == [ask.prompt.id for ask in asks]
    own = [(r.tokens[0], ask.seed) for r, ask in zip(found, asks, strict=True) if r.text == "own"]
    assert all(token == seed for token, seed in own)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, ["ooo", "ooo", "ooo"]), (1, ["soo", "ooo", "soo"]), (2, ["sso", "ooo", "sso"])],
)
def test_external_takes_places_of_prompts_with_a_demonstration(
    count: int, expected: list[str]
) -> None:
    plugin = Plugin(name="external", options={"external_per_group": count})
    found = build(ROLLOUT_STRATEGIES, plugin)(written, asks_of(3), shown("a", "c"))
    assert texts(found, 3) == expected
    assert {r.source for r in found if r.text == "shown"} == ({"external"} if count else set())


def test_external_serves_each_group_of_a_prompt_drawn_twice() -> None:
    twice = [PROMPTS[0], PROMPTS[0]]
    found = ROLLOUT_STRATEGIES["external"](written, asks_of(2, twice), shown("a"))
    assert texts(found, 2) == ["so", "so"]


def test_external_adds_none_in_a_later_round() -> None:
    later = [Ask(PROMPTS[0], 1, None, place) for place in (4, 5)]
    assert texts(ROLLOUT_STRATEGIES["external"](written, later, shown("a")), 2) == ["oo"]


def test_the_policy_is_not_asked_for_nothing() -> None:
    def never(asks: Sequence[Ask]) -> list[Rollout]:
        raise AssertionError(asks)

    found = ROLLOUT_STRATEGIES["external"](never, asks_of(1, PROMPTS[:1]), shown("a"))
    assert texts(found, 1) == ["s"]


def test_a_negative_count_is_no_option() -> None:
    with pytest.raises(ConfigError, match="external_per_group"):
        build(ROLLOUT_STRATEGIES, Plugin(name="external", options={"external_per_group": -1}))
