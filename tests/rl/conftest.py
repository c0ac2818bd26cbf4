"""An explorer on any engine, without a stage around it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.conftest import EMBEDDED
from tests.rl.simulated import SimulatedEngine
from transformers import AutoTokenizer

from posttrain.engines import Engine
from posttrain.records import Prompt
from posttrain.rewards.gates import weighted_sum
from posttrain.rl.budgets import fixed
from posttrain.rl.config import RLConfig
from posttrain.rl.environments import SingleTurn
from posttrain.rl.explorer import Explorer
from posttrain.rl.pool import Pool
from posttrain.rl.rollout import Rollout
from posttrain.rl.strategies import plain


def in_order(pool: Pool, count: int) -> list[Prompt]:
    """The prompts as they stand in the pool, over and over."""
    pool.cursor += count
    return [pool.prompts[at % len(pool.prompts)] for at in range(pool.cursor - count, pool.cursor)]


def every_other(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """A reward with signal in every group of two or more."""
    return [float(at % 2 == 0) for at, _ in enumerate(rollouts)]


@pytest.fixture(scope="session")
def explorer_of() -> Callable[..., Explorer]:
    """Make one of an engine, its tokenizer and prompts; what is no part of it is an option."""

    def make(engine: Engine, tokenizer: Any, prompts: Sequence[Prompt], **given: Any) -> Explorer:
        parts: dict[str, Any] = {
            "sample": in_order,
            "budget": fixed,
            "strategy": plain,
            "environment": SingleTurn(),
            "rewards": {"test": every_other},
            "gate": weighted_sum,
            "judge": None,
            "demonstrations": {},
            "turns": lambda _step: 8,
        }
        parts |= {name: given.pop(name) for name in [*parts] if name in given}
        config = RLConfig.model_validate({"max_new_tokens": 64, "group_size": 1} | given)
        return Explorer(config, engine, tokenizer, Pool(prompts, 0), **parts)

    return make


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(EMBEDDED)


@pytest.fixture
def clock(tokenizer: Any) -> SimulatedEngine:
    """An engine on which a token takes a tick."""
    return SimulatedEngine(tokenizer.eos_token_id)
