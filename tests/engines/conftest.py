"""A policy and vLLM on it, started once for all tests that ask."""

from collections.abc import Iterator

import pytest
import torch
from tests.conftest import EMBEDDED
from tests.engines.on_vllm import engine_of

from posttrain.engines import Engine
from posttrain.policies import Policy, load_policy


@pytest.fixture(scope="session")
def shared() -> tuple[Policy, Engine]:
    """A policy in float32 and vLLM on it."""
    policy = load_policy(EMBEDDED, dtype=torch.float32)
    return policy, engine_of(policy)


@pytest.fixture
def policy(shared: tuple[Policy, Engine]) -> Iterator[Policy]:
    """The policy, its weights put back afterwards."""
    policy, _ = shared
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    yield policy
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.copy_(before[name])


@pytest.fixture
def engine(shared: tuple[Policy, Engine]) -> Engine:
    return shared[1]
