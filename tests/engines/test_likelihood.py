"""Sharing passes, slicing logits and recomputing change neither likelihoods nor gradients."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedModel, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3

from posttrain.engines import likelihood
from posttrain.engines.likelihood import Row, batches, pad_left, response_logps, response_scores
from posttrain.policies import load_policy
from posttrain.rl.precisions import unified_fp8

ROWS = [
    Row((5, 6, 7), (8, 9), 0),
    Row((5, 6, 7), (10, 11, 12, 13), 1),
    Row((20, 21, 22, 23, 24), (8,), 2),
    Row((5, 6, 7), (), 3),
    Row((5, 6, 7), (8, 9), 4),
]
ACTED_BT = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
"""Which tokens the policy wrote: the second row holds two of the environment's."""

WEIGHT_BT = torch.linspace(-1.0, 1.5, 20).view(5, 4) * ACTED_BT

Scores = Callable[[PreTrainedModel], tuple[Tensor, Tensor]]


def small(vocabulary: int = 800, **options: object) -> PreTrainedModel:
    """A random Qwen3 with untied embeddings."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False,
        pad_token_id=1, **options,
    )  # fmt: skip
    return Qwen3(config).eval()


def shared(model: PreTrainedModel, **options: object) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies as the learner gets them."""
    logp_BT, mask_BT, entropy_BT = response_scores(model, ROWS, 1, 0.8, entropy=True, **options)
    assert mask_BT.sum(dim=1).tolist() == [2, 4, 1, 0, 2]
    assert entropy_BT is not None
    return logp_BT, entropy_BT


def padded(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """The same by one plain forward pass over prompt and response, padded on the left."""
    whole = pad_left([row.prompt + row.response for row in ROWS], 1, model.device)
    logits_BTV = model(
        input_ids=whole.ids_BT, attention_mask=whole.mask_BT, position_ids=whole.positions_BT
    ).logits
    logp_BTV = (logits_BTV / 0.8).log_softmax(-1)
    blank_T = torch.zeros(4)
    taken, spread = [], []
    for b, row in enumerate(ROWS):
        start = whole.ids_BT.shape[1] - len(row.response) - 1
        own_TV = logp_BTV[b, start : start + len(row.response)]
        empty = blank_T[len(row.response) :]
        of_tokens = own_TV[range(len(row.response)), row.response]
        taken.append(torch.cat([of_tokens, empty]))
        spread.append(torch.cat([-(own_TV.exp() * own_TV).sum(-1), empty]))
    return torch.stack(taken), torch.stack(spread)


def outcome(model: PreTrainedModel, scores: Scores) -> tuple[Tensor, dict[str, Tensor]]:
    """Values where the policy wrote, and the gradients of a weighted sum of them."""
    model.zero_grad()
    logp_BT, entropy_BT = scores(model)
    (WEIGHT_BT * (logp_BT + 0.3 * entropy_BT)).sum().backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return torch.stack([logp_BT, entropy_BT]).detach() * ACTED_BT, found


def assert_same(model: PreTrainedModel, one: Scores, other: Scores, tolerance: float) -> None:
    (value, gradients), (expected, wanted) = outcome(model, one), outcome(model, other)
    torch.testing.assert_close(value, expected, atol=tolerance, rtol=tolerance)
    assert gradients.keys() == wanted.keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in gradients.values())
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, atol=tolerance, rtol=tolerance)


def test_shared_passes_equal_separate_rows_in_value_and_gradient(tiny_policy: Path) -> None:
    model = load_policy(tiny_policy).model
    logps_BT, mask_BT = response_logps(model, ROWS, pad=1, temperature=0.8)
    assert mask_BT.sum(dim=1).tolist() == [2, 4, 1, 0, 2]
    (logps_BT * mask_BT).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    total = torch.zeros(())
    for row, logp_T in zip(ROWS, logps_BT.tolist(), strict=True):
        logp_TV = (model(torch.tensor([row.prompt + row.response])).logits[0] / 0.8).log_softmax(-1)
        start = len(row.prompt) - 1
        plain = [logp_TV[start + i, token] for i, token in enumerate(row.response)]
        assert logp_T[: len(plain)] == pytest.approx([p.item() for p in plain], abs=1e-5)
        total = total + sum(plain, torch.zeros(()))
    total.backward()
    for name, p in model.named_parameters():
        assert torch.allclose(gradients[name], p.grad, atol=1e-5), name


def test_shared_passes_equal_the_padded_forward() -> None:
    assert_same(small(), shared, padded, 1e-5)


def test_sliced_logits_equal_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def sliced(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
        head = model.get_output_embeddings()
        watched = head.register_forward_hook(lambda *call: sizes.append(call[2].numel()))
        monkeypatch.setattr(likelihood, "LOGITS_BYTES", 3 * 4 * 800)
        found = shared(model)
        monkeypatch.undo()
        watched.remove()
        return found

    assert_same(small(), sliced, shared, 1e-6)
    assert max(sizes[2:]) == 3 * 800


def test_layers_that_run_again_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    assert_same(model, partial(shared, recompute=True), shared, 1e-6)
    assert all("forward" not in vars(module) for module in model.modules())
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", 3 * 4 * 800)
    context = partial(unified_fp8, model, "train", block=8)
    rounded, again = (
        partial(shared, context=context),
        partial(shared, context=context, recompute=True),
    )
    assert_same(model, again, rounded, 1e-6)
    assert not torch.allclose(outcome(model, shared)[0], outcome(model, rounded)[0], atol=1e-4)


def test_a_head_with_a_soft_cap_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=800, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, pad_token_id=1,
        final_logit_softcapping=0.05, sliding_window=4,
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).eval()
    expected, _ = shared(model)
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", 1)
    torch.testing.assert_close(shared(model)[0], expected)


class Saved(torch.autograd.graph.saved_tensors_hooks):
    """Counts what a forward pass keeps for the backward pass, in bytes, weights left out."""

    def __init__(self, model: nn.Module) -> None:
        self.kept: dict[int, int] = {}
        held = {p.data_ptr() for p in model.parameters()}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in held:
                storage = tensor.untyped_storage()
                self.kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        super().__init__(pack, lambda tensor: tensor)


def test_a_large_vocabulary_does_not_stand_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(vocabulary=50_000)
    rows = [Row((5, 6, 7), (*range(10, 30), i), i) for i in range(4)]

    def kept(limit: int, **options: object) -> int:
        monkeypatch.setattr(likelihood, "LOGITS_BYTES", limit)
        saved = Saved(model)
        with saved:
            logp_BT, _, _ = response_scores(model, rows, 1, **options)
        logp_BT.sum().backward()
        return sum(saved.kept.values())

    whole, sliced = kept(2**40), kept(2**20)
    assert whole > 4 * 20 * 50_000 * 4
    assert sliced < whole / 10
    assert kept(2**20, recompute=True) < 0.7 * sliced


@pytest.mark.parametrize("tokens", [1, 9, 12, 1000])
def test_batches_hold_each_row_once_and_no_more_tokens_than_asked(tokens: int) -> None:
    found = list(batches(ROWS, tokens))
    assert sorted(row.place for chunk in found for row in chunk) == [0, 1, 2, 3, 4]
    for chunk in found:
        prompts = {row.prompt for row in chunk}
        area = len(prompts) * max(map(len, prompts))
        distinct = {(row.prompt, row.response) for row in chunk}
        area += len(distinct) * max(len(row.response) for row in chunk)
        assert area <= tokens or len(distinct) == 1
