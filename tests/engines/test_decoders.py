"""The fast decoder says what the model says, whichever rows leave and share a prefix."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from posttrain.engines import decoders
from posttrain.engines.decoders import AnyDecoder, Decoder, SharedDecoder, decoder_for
from posttrain.engines.likelihood import pad_left
from posttrain.rl.precisions import unified_fp8

SIZES: dict[str, Any] = {
    "vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 1,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
PREFIXES = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]
OWNERS = {
    "one_each": [0, 1, 2],
    "groups": [0, 0, 1, 1, 2, 2],
    "uneven_and_unordered": [2, 0, 1, 0, 0, 2],
    "one_prefix_unused": [2, 2, 0, 2],
}
LEAVING = {2: [0, 2, 3], 4: [1]}
"""The rows that go on before a step, so far as there are so many."""


def made(kind: str) -> Any:
    """A random model whose every weight, norms and biases too, takes part."""
    torch.manual_seed(0)
    model: Any = {
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
        "llama3": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
        "lora": lambda: get_peft_model(
            Qwen3ForCausalLM(Qwen3Config(**SIZES)),
            LoraConfig(target_modules="all-linear", init_lora_weights=False),
        ),
    }[kind]()
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    return model.eval()


def told(decoder: Decoder, rows: int) -> list[Tensor]:
    """The logits of each step, some rows leaving on the way."""
    found = [decoder.begin()]
    for step in range(6):
        kept = [row for row in LEAVING.get(step, range(rows)) if row < rows]
        if len(kept) < rows:
            decoder.keep(torch.tensor(kept))
        rows = len(kept)
        found.append(decoder.step(torch.arange(20 + step, 20 + step + rows)))
    return found


def assert_same(model: Any, owners: Sequence[int]) -> None:
    prefixes = pad_left(PREFIXES, 1, model.device)
    with torch.no_grad():
        fast = decoder_for(model, prefixes, owners, 6)
        assert isinstance(fast, SharedDecoder)
        plain = AnyDecoder(model, prefixes, owners, 6)
        pairs = zip(told(fast, len(owners)), told(plain, len(owners)), strict=True)
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("owners", OWNERS.values(), ids=OWNERS)
@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama3", "lora"])
def test_the_shared_decoder_follows_the_model(kind: str, owners: list[int]) -> None:
    assert_same(made(kind), owners)


def test_large_matrices_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "JOINED_BYTES", 0)
    assert_same(made("qwen2"), OWNERS["groups"])


def test_a_precision_holds_while_decoding() -> None:
    model, owners = made("qwen3"), OWNERS["groups"]
    prefixes = pad_left(PREFIXES, 1, model.device)
    with torch.no_grad():
        plain = told(decoder_for(model, prefixes, owners, 6), len(owners))[-1]
        with unified_fp8(model, "rollout", block=8):
            rounded = told(decoder_for(model, prefixes, owners, 6), len(owners))[-1]
            expected = told(AnyDecoder(model, prefixes, owners, 6), len(owners))[-1]
    assert not torch.allclose(rounded, plain, atol=1e-2)
    assert (rounded - expected).abs().mean() < 0.1 * (plain - expected).abs().mean()


def test_other_models_run_as_they_are() -> None:
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**SIZES, sliding_window=4)).eval()
    assert isinstance(decoder_for(model, pad_left(PREFIXES, 1, model.device), [0], 6), AnyDecoder)
