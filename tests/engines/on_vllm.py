"""What tests of engines on vLLM share."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from posttrain.engines import ENGINES, Completion, Engine
from posttrain.engines.transformers import TransformersEngine
from posttrain.plugins import Plugin, build
from posttrain.policies import Policy, chat_ids

needs_vllm = pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed: sh scripts/setup_vllm.sh"
)
PROMPTS = ["2 + 3?", "Ann has 12 apples and buys 30 more. How many apples has Ann?", "", "7 * 8?"]
RESPONSES = ["5", "12 + 30 = 42\n#### 42", "hello", ""]
TOLERANCE = 1e-4
SMALL: dict[str, Any] = {"kv_cache_gib": 0.125, "max_model_len": 256}


def engine_of(policy: Policy, **options: Any) -> Engine:
    return build(ENGINES, Plugin(name="vllm", options=SMALL | options))(policy)


def assert_same_likelihoods(policy: Policy, engine: Engine, tolerance: float = TOLERANCE) -> None:
    found, expected = (
        each.logps(PROMPTS, RESPONSES) for each in (engine, TransformersEngine(policy))
    )
    for mine_T, theirs_T in zip(found, expected, strict=True):
        assert mine_T == pytest.approx(theirs_T, abs=tolerance)


def fresh_logps(
    policy: Policy, prompt: str, tokens: tuple[int, ...], temperature: float
) -> list[float]:
    start = chat_ids(policy.tokenizer, prompt)
    with torch.no_grad():
        logits_TV = policy.model(torch.tensor([[*start, *tokens]])).logits[0]
    logp_TV = (logits_TV / temperature).log_softmax(-1)
    return [logp_TV[len(start) + i - 1, t].item() for i, t in enumerate(tokens)]


def take_step(policy: Policy) -> None:
    """One step of the optimiser that the learner uses."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, fused=True)
    ids = torch.tensor([chat_ids(policy.tokenizer, PROMPTS[1])])
    policy.model(ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def assert_stopped(found: list[Completion], told: list[list[int]], rooms: list[int]) -> None:
    assert told[0] == [0]
    assert len(told[-1]) == 2
    lengths = [len(completion.tokens) for completion in found]
    assert [lengths[at] for at in told[-1]] == [rooms[at] for at in told[-1]]
    assert lengths[2] < rooms[2]
    assert found[2].truncated
