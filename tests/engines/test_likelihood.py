"""Sharing forward passes changes neither likelihoods nor gradients."""

from pathlib import Path

import pytest
import torch

from posttrain.engines.likelihood import Row, batches, response_logps
from posttrain.policies import load_policy

ROWS = [
    Row((5, 6, 7), (8, 9), 0),
    Row((5, 6, 7), (10, 11, 12, 13), 1),
    Row((20, 21, 22, 23, 24), (8,), 2),
    Row((5, 6, 7), (), 3),
    Row((5, 6, 7), (8, 9), 4),
]


def test_shared_passes_equal_separate_rows_in_value_and_gradient(tiny_policy: Path) -> None:
    model = load_policy(tiny_policy).model
    logps_BT, mask_BT = response_logps(model, ROWS, pad=1, temperature=0.8)
    assert mask_BT.sum(dim=1).tolist() == [2, 4, 1, 0, 2]
    (logps_BT * mask_BT).sum().backward()
    shared = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
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
        assert torch.allclose(shared[name], p.grad, atol=1e-5), name


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
