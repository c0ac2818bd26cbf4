"""The cache written in place holds what DynamicCache holds."""

import torch
from transformers.cache_utils import DynamicLayer

from posttrain.engines.cache import GrowingLayer


def test_the_same_states_after_growing_repeating_and_selecting() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = GrowingLayer(room=2), DynamicLayer()
    rows = 3

    def append(tokens: int) -> None:
        piece = torch.rand(2, rows, 2, tokens, 4, generator=generator)
        found = ours.update(*piece.clone())
        expected = theirs.update(*piece.clone())
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))

    append(5)
    append(1)
    for layer in (ours, theirs):
        layer.batch_repeat_interleave(2)
    rows = 6
    for _ in range(4):
        append(1)
    for layer in (ours, theirs):
        layer.batch_select_indices(torch.tensor([0, 2, 5]))
    rows = 3
    append(2)
    append(1)
    assert ours.get_seq_length() == theirs.get_seq_length() == 13
