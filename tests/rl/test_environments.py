"""Environments speak in the middle of a response, and what they say is not the policy's."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from posttrain.engines.transformers import TransformersEngine
from posttrain.policies import Policy, batch_ids, load_policy
from posttrain.records import Prompt
from posttrain.rewards.verifiers import verify
from posttrain.rl.environments import ENVIRONMENTS, Calculator, SingleTurn
from posttrain.rl.explorer import Explorer
from posttrain.rl.rollout import Rollout
from posttrain.rl.strategies import Ask
from posttrain.tasks import TASKS, generate_many

EMBEDDED = Path(__file__).parents[2] / "src/posttrain/base/tiny"
Make = Callable[..., Explorer]
CALL = "12 * 7 = "
PROMPT = Prompt(id="p", text="?", answer="84", task="arithmetic", source="test")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(EMBEDDED)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    problems = generate_many(TASKS["arithmetic"], 8, {1: 1, 2: 1, 3: 1, 4: 1}, "train", 0)
    return [
        Prompt(id=str(i), text=p.text, answer=p.answer, task="arithmetic", source="test")
        for i, p in enumerate(problems)
    ]


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("text", ["", "=", " = ", "\n=", "1 + = ", "x" * 5000, "\x00 ="])
def test_what_is_no_call_gets_no_answer(name: str, text: str) -> None:
    assert ENVIRONMENTS[name]().observe(PROMPT, text) is None


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("12 * 7 =", " 84\n"),
        ("12 * 7 = ", "84\n"),
        ("12*7=", " 84\n"),
        ("2 + 3 = 5\n5 - 8 = ", "-3\n"),
        ("-3 + 8 = ", "5\n"),
        ("0 / 5 = ", "0\n"),
        ("84 / 7 = ", "12\n"),
        ("85 / 7 = ", None),
        ("85 / 0 = ", None),
        ("1 + 2 + 3 = ", None),
        ("(1 + 2) * 3 = ", None),
        ("1.5 + 2 = ", None),
        ("12 * 7 = 84", None),
        ("12 * 7 =  ", None),
        ("12 ** 7 = ", None),
        ("999999999 * 999999999 = ", "999999998000000001\n"),
        ("1000000000 + 1 = ", None),
        ("9" * 4000 + " * 9 = ", None),
        ("٣ + ٤ = ", None),
    ],
)
def test_the_calculator_by_hand(text: str, heard: str | None) -> None:
    assert Calculator().observe(PROMPT, text) == heard


def test_it_listens_for_the_equals_signs_of_the_tokenizer(policy: Policy) -> None:
    tokenizer = policy.tokenizer
    heard = [tokenizer.decode([token]) for token in Calculator().stops(tokenizer)]
    assert sorted(heard) == [" = ", "=", "= "]
    assert SingleTurn().stops(tokenizer) == ()


@pytest.mark.parametrize("text", ["12 * 7 =", "12 * 7 = "])
def test_the_text_is_what_the_policy_would_have_written(policy: Policy, text: str) -> None:
    """Token by token as well, where the policy's own sign takes the space with it."""
    heard = Calculator().observe(PROMPT, text)
    assert heard is not None
    assert text + heard == "12 * 7 = 84\n"
    ids = [i for piece in batch_ids(policy.tokenizer, [CALL, heard]) for i in piece]
    assert policy.tokenizer.decode(ids) == "12 * 7 = " + heard
    if text.endswith(" "):
        own = batch_ids(policy.tokenizer, ["12 * 7 = 84\n84"])[0]
        listened = own.index(Calculator().stops(policy.tokenizer)[-1]) + 1
        assert own[listened:-2] == batch_ids(policy.tokenizer, [heard])[0]


def played(
    make: Make, policy: Policy, prompts: list[Prompt], environment: Any, **options: Any
) -> list[Rollout]:
    explorer = make(
        TransformersEngine(policy), policy.tokenizer, prompts, environment=environment, **options
    )
    return explorer.play([Ask(p, seed) for p in prompts for seed in range(4)], step=3)


@pytest.fixture(scope="module")
def alone(explorer_of: Make, policy: Policy, prompts: list[Prompt]) -> list[Rollout]:
    return played(explorer_of, policy, prompts, SingleTurn())


@pytest.fixture(scope="module")
def helped(explorer_of: Make, policy: Policy, prompts: list[Prompt]) -> list[Rollout]:
    return played(explorer_of, policy, prompts, Calculator())


def test_observations_are_not_the_policys_words(policy: Policy, helped: list[Rollout]) -> None:
    assert any(rollout.turns > 2 for rollout in helped)
    equals = Calculator().stops(policy.tokenizer)
    for r in helped:
        assert len(r.tokens) == len(r.behaviour_logps) == len(r.versions) <= 64
        assert set(r.versions) == {3}
        acted = r.acted or (True,) * len(r.tokens)
        assert [logp == 0 for logp in r.behaviour_logps] == [not own for own in acted]
        assert r.text == policy.tokenizer.decode(r.tokens, skip_special_tokens=True)
        stretches = r.chunks
        assert len(stretches) in (r.turns, r.turns - 1)
        for one, after in pairwise(stretches):
            assert r.tokens[one.stop - 1] in equals
            said = policy.tokenizer.decode(r.tokens[one.stop : after.start])
            line = policy.tokenizer.decode(r.tokens[: one.stop]).rpartition("\n")[2]
            assert said == Calculator().observe(PROMPT, line)
        assert r.learnable == sum(len(stretch) for stretch in stretches)


def solved(rollout: Rollout) -> bool:
    """By its first answer: the embedded policy was never taught to end its turn after it."""
    found = re.search(r"(?s)^.*?#### \d+", rollout.text)
    prompt = rollout.prompt
    return bool(found) and verify("arithmetic", prompt.text, prompt.answer, found[0])


def test_the_calculator_mends_arithmetic(alone: list[Rollout], helped: list[Rollout]) -> None:
    """Of the same seeds more answers are right, wrong ones among them by a slip."""
    right = [[solved(rollout) for rollout in rollouts] for rollouts in (alone, helped)]
    assert sum(right[1]) > sum(right[0])
    assert (False, True) in zip(*right, strict=True)


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_the_schedule_limits_the_turns(
    explorer_of: Make, policy: Policy, prompts: list[Prompt], alone: list[Rollout], allowed: int
) -> None:
    found = played(explorer_of, policy, prompts, Calculator(), turns=lambda _step: allowed)
    assert max(rollout.turns for rollout in found) == allowed
    if allowed == 1:
        assert found == alone


@pytest.mark.parametrize("room", [1, 6, 8, 10])
def test_nobody_writes_beyond_the_room(
    explorer_of: Make, policy: Policy, prompts: list[Prompt], room: int
) -> None:
    for r in played(explorer_of, policy, prompts, Calculator(), max_new_tokens=room):
        assert 1 <= len(r.tokens) <= room
        ended = r.tokens[-1] == policy.tokenizer.eos_token_id
        assert r.truncated == (not ended)


def test_a_malformed_call_leaves_the_response_as_it_was(
    explorer_of: Make, policy: Policy, prompts: list[Prompt], alone: list[Rollout]
) -> None:
    """Interrupted at each equals sign, but never answered: the policy writes the same."""

    class Mute(Calculator):
        def observe(self, prompt: Prompt, text: str) -> str | None:
            return None

    for mute, plain in zip(played(explorer_of, policy, prompts, Mute()), alone, strict=True):
        assert (mute.tokens, mute.text, mute.acted) == (plain.tokens, plain.text, ())
        assert mute.behaviour_logps == pytest.approx(plain.behaviour_logps, abs=1e-4)
