"""A key-value cache that is written in place, where DynamicCache copies itself every token."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values [B, heads, T, width], views of buffers with room for more tokens."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self._key_buffer = self._value_buffer = torch.empty(0)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append one piece and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        held, total = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if self.keys.data_ptr() != self._key_buffer.data_ptr() or total > self._key_buffer.shape[2]:
            self._key_buffer = with_room(self.keys, self.room)
            self._value_buffer = with_room(self.values, self.room)
        self._key_buffer[:, :, held:total] = key_states
        self._value_buffer[:, :, held:total] = value_states
        self.keys, self.values = self._key_buffer[:, :, :total], self._value_buffer[:, :, :total]
        return self.keys, self.values


def with_room(states: Tensor, room: int) -> Tensor:
    """A copy with `room` unwritten tokens after the held ones."""
    rows, heads, held, width = states.shape
    buffer = states.new_empty(rows, heads, held + room, width)
    buffer[:, :, :held] = states
    return buffer


def growing_cache(model: PreTrainedModel, room: int) -> DynamicCache:
    """An empty cache for the model; sliding-window and other special layers stay the model's."""
    cache = DynamicCache(config=model.config)
    if all(type(layer) is DynamicLayer for layer in cache.layers):
        cache.layers = [GrowingLayer(room) for _ in cache.layers]
    return cache
