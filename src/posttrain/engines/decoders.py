"""Decoders: a batch of rows goes on from its prefixes, one token at a time.

`AnyDecoder` runs the model as it is. `SharedDecoder` knows the layers of Llama and Qwen: rows of
one prefix read its keys and values where they stand, in one matrix product for all of them, and
no step copies, masks or rotates more than its own token. On a CPU that is up to twice as fast.
Shapes: B rows, P prefixes, S slots of each, T tokens of a prefix, W written ones, K key-value
heads, Q query heads of each, D head width, H hidden width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache

from posttrain.engines.cache import growing_cache
from posttrain.engines.likelihood import Padded, run

LAYOUTS = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
STILL_ROTATIONS = {"default", "linear", "llama3", "yarn"}
"""Rotary embeddings that depend on a token's position alone."""

JOINED_BYTES = 8 * 2**20
"""Matrices of at most this size in all are copied into one, whose product takes one call."""


class Decoder(Protocol):
    """Rows that are decoded together."""

    def begin(self) -> Tensor:
        """Read the prefixes; logits [B, V] of each row's first token."""

    def step(self, token_B: Tensor) -> Tensor:
        """Write a token to each row; logits [B, V] of the next."""

    def keep(self, kept: Tensor) -> None:
        """Go on with these rows only."""


def decoder_for(model: Any, prefixes: Padded, owners: Sequence[int], room: int) -> Decoder:
    """A decoder of rows that go on from `prefixes[owners[n]]` by at most `room` tokens each."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    if model.device.type == "cpu" and is_plain(whole):
        return SharedDecoder(whole, prefixes, owners, room)
    return AnyDecoder(model, prefixes, owners, room)


def is_plain(model: Any) -> bool:
    """Whether each layer is the one that `SharedDecoder` computes."""
    config = model.config
    rotation = getattr(model.get_decoder().rotary_emb, "rope_type", "")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        type(model).__name__ in LAYOUTS
        and config.hidden_act == "silu"
        and kinds == {"full_attention"}
        and rotation in STILL_ROTATIONS
    )


class AnyDecoder:
    """Runs the model's own forward pass over a key-value cache of its own."""

    def __init__(self, model: Any, prefixes: Padded, owners: Sequence[int], room: int) -> None:
        self.model, self.prefixes, self.owners = model, prefixes, list(owners)
        self.cache = growing_cache(model, room)
        self.owner_B = torch.tensor(self.owners, device=model.device)
        self.mask_BT = prefixes.mask_BT[self.owner_B]
        self.position_B = prefixes.positions_BT[:, -1][self.owner_B]

    def begin(self) -> Tensor:
        """As in `Decoder`."""
        logits_PV = run(self.model, self.prefixes, self.cache, keep=1)[:, -1]
        if self.owners != list(range(len(self.prefixes.ids_BT))):
            self.cache.batch_select_indices(self.owner_B)
        return logits_PV[self.owner_B]

    def step(self, token_B: Tensor) -> Tensor:
        """As in `Decoder`."""
        self.position_B = self.position_B + 1
        self.mask_BT = torch.cat([self.mask_BT, self.mask_BT.new_ones(len(self.mask_BT), 1)], dim=1)
        turn = Padded(token_B[:, None], self.mask_BT, self.position_B[:, None])
        return run(self.model, turn, self.cache, keep=1)[:, -1]

    def keep(self, kept: Tensor) -> None:
        """As in `Decoder`."""
        self.cache.batch_select_indices(kept)
        self.position_B, self.mask_BT = self.position_B[kept], self.mask_BT[kept]


class SharedDecoder:
    """Keeps keys and values of each prefix once, and each row's own beside them."""

    def __init__(self, model: Any, prefixes: Padded, owners: Sequence[int], room: int) -> None:
        self.model, self.prefixes, self.owners, self.room = model, prefixes, list(owners), room
        self.decoder, self.head = model.get_decoder(), model.get_output_embeddings()
        config = model.config
        self.heads = config.num_key_value_heads
        self.queries = config.num_attention_heads // self.heads
        self.written = 0

    def begin(self) -> Tensor:
        """As in `Decoder`."""
        cache = DynamicCache(config=self.model.config)
        logits_PV = run(self.model, self.prefixes, cache, keep=1)[:, -1]
        owner_B = torch.tensor(self.owners)
        self.prefix = [(layer.keys.mT.contiguous(), layer.values) for layer in cache.layers]
        self.mask_PT = self.prefixes.mask_BT
        _, heads, _, width = cache.layers[0].values.shape
        shape = (len(self.owners), heads, self.room, width)
        self.own = [(v.new_empty(shape), v.new_empty(shape)) for _, v in self.prefix]
        self.position_B = self.prefixes.positions_BT[:, -1][owner_B]
        last = int(self.position_B.max()) + self.room
        every = torch.arange(last + 1)[None]
        self.cos_ND, self.sin_ND = (
            table[0] for table in self.decoder.rotary_emb(self.prefix[0][1], every)
        )
        self.layers = [Layer(layer) for layer in self.decoder.layers]
        self._assign_slots()
        return logits_PV[owner_B]

    def _assign_slots(self) -> None:
        """Number the rows of each prefix that is still in use, and let the others go."""
        used = sorted(set(self.owners))
        if len(used) < len(self.mask_PT):
            self.prefix = [(keys[used], values[used]) for keys, values in self.prefix]
            self.mask_PT = self.mask_PT[used]
            number = {owner: at for at, owner in enumerate(used)}
            self.owners = [number[owner] for owner in self.owners]
        counts = [0] * len(used)
        ranks = []
        for owner in self.owners:
            ranks.append(counts[owner])
            counts[owner] += 1
        self.slots = max(counts)
        places = [o * self.slots + r for o, r in zip(self.owners, ranks, strict=True)]
        self.every_slot = places == list(range(len(used) * self.slots))
        self.slot_B = torch.tensor(places)
        hidden_PT = self.mask_PT == 0
        self.bias_P11T = None
        if bool(hidden_PT.any()):
            bias_PT = torch.zeros(hidden_PT.shape, dtype=self.prefix[0][1].dtype)
            self.bias_P11T = bias_PT.masked_fill(hidden_PT, -torch.inf)[:, None, None]

    def step(self, token_B: Tensor) -> Tensor:
        """As in `Decoder`."""
        self.position_B = self.position_B + 1
        cos_B1D = self.cos_ND[self.position_B][:, None]
        sin_B1D = self.sin_ND[self.position_B][:, None]
        stream_BH = self.decoder.embed_tokens(token_B)
        for at, layer in enumerate(self.layers):
            given_BXD = layer.attended(stream_BH)
            heads = given_BXD.shape[1] - self.heads
            turned_BXD = rotated(given_BXD[:, :heads], cos_B1D, sin_B1D)
            heard_BH = self._attend(at, turned_BXD, given_BXD[:, heads:], layer.scaling)
            stream_BH = layer.passed_on(stream_BH, heard_BH)
        self.written += 1
        logits_BV: Tensor = self.head(rms(self.decoder.norm, stream_BH))
        return logits_BV

    def _attend(self, at: int, turned_BXD: Tensor, value_BKD: Tensor, scaling: float) -> Tensor:
        """What each query head hears; `turned_BXD`: the query heads and then the key heads."""
        rows, both, width = turned_BXD.shape
        keys, values = self.own[at]
        keys[:rows, :, self.written] = turned_BXD[:, both - self.heads :]
        values[:rows, :, self.written] = value_BKD
        keys, values = (held[:rows, :, : self.written + 1] for held in (keys, values))
        query_BXD = turned_BXD[:, : both - self.heads] * scaling
        query_BKQD = query_BXD.view(rows, self.heads, self.queries, width)
        prefix_keys, prefix_values = self.prefix[at]
        of_prefix = self._gathered(self._spread(query_BKQD) @ prefix_keys, self.bias_P11T)
        scores = torch.cat([of_prefix, query_BKQD @ keys.mT], dim=-1).softmax(dim=-1)
        length = of_prefix.shape[-1]
        heard = self._gathered(self._spread(scores[..., :length]) @ prefix_values, None)
        whole: Tensor = heard + scores[..., length:] @ values
        return whole.reshape(rows, -1)

    def _spread(self, rows_BKQX: Tensor) -> Tensor:
        """From rows to the slots of their prefixes [P, K, S * Q, X]."""
        prefixes, (_, heads, queries, width) = len(self.mask_PT), rows_BKQX.shape
        slots = rows_BKQX
        if not self.every_slot:
            slots = rows_BKQX.new_zeros(prefixes * self.slots, heads, queries, width)
            slots[self.slot_B] = rows_BKQX
        slots = slots.view(prefixes, self.slots, heads, queries, width).transpose(1, 2)
        return slots.reshape(prefixes, heads, self.slots * queries, width)

    def _gathered(self, slots_PKXY: Tensor, bias_P11T: Tensor | None) -> Tensor:
        """From the slots of the prefixes, with the bias of each, back to rows [B, K, Q, Y]."""
        if bias_P11T is not None:
            slots_PKXY = slots_PKXY + bias_P11T
        prefixes, heads, _, width = slots_PKXY.shape
        slots = slots_PKXY.view(prefixes, heads, self.slots, self.queries, width).transpose(1, 2)
        rows = slots.reshape(prefixes * self.slots, heads, self.queries, width)
        return rows if self.every_slot else rows[self.slot_B]

    def keep(self, kept: Tensor) -> None:
        """As in `Decoder`."""
        for pair in self.own:
            for held in pair:
                held[: len(kept), :, : self.written] = held[kept, :, : self.written]
        self.position_B = self.position_B[kept]
        self.owners = [self.owners[row] for row in kept.tolist()]
        self._assign_slots()


class Layer:
    """One layer of the model, its products of one input joined."""

    def __init__(self, layer: Any) -> None:
        self.layer, attention, mlp = layer, layer.self_attn, layer.mlp
        self.width, self.scaling = attention.head_dim, attention.scaling
        self.look = joined([attention.q_proj, attention.k_proj, attention.v_proj])
        self.grow = joined([mlp.gate_proj, mlp.up_proj])
        self.weight_XD: Tensor | None = None
        if hasattr(attention, "q_norm"):
            config = attention.config
            heads = (config.num_attention_heads, config.num_key_value_heads)
            norms = zip((attention.q_norm, attention.k_norm), heads, strict=True)
            self.weight_XD = torch.cat([norm.weight.expand(count, -1) for norm, count in norms])

    def attended(self, stream_BH: Tensor) -> Tensor:
        """Query, key and value heads [B, X, D], query and key normed where the model does that."""
        normed_BH = rms(self.layer.input_layernorm, stream_BH)
        heads_BXD = self.look(normed_BH).view(len(stream_BH), -1, self.width)
        if self.weight_XD is None:
            return heads_BXD
        count = len(self.weight_XD)
        epsilon = self.layer.self_attn.q_norm.variance_epsilon
        normed_BXD = functional.rms_norm(heads_BXD[:, :count], (self.width,), eps=epsilon)
        return torch.cat([normed_BXD * self.weight_XD, heads_BXD[:, count:]], dim=1)

    def passed_on(self, stream_BH: Tensor, heard_BH: Tensor) -> Tensor:
        """The stream behind the layer."""
        stream_BH = stream_BH + self.layer.self_attn.o_proj(heard_BH)
        normed_BH = rms(self.layer.post_attention_layernorm, stream_BH)
        gate_BF, up_BF = self.grow(normed_BH).chunk(2, dim=-1)
        down_BH: Tensor = self.layer.mlp.down_proj(functional.silu(gate_BF) * up_BF)
        return stream_BH + down_BH


def joined(modules: Sequence[Any]) -> Callable[[Tensor], Tensor]:
    """The outputs of these layers side by side; small plain ones as one product."""
    weights = [module.weight for module in modules]
    plain = all(type(m) is nn.Linear and "forward" not in vars(m) for m in modules)
    if not plain or sum(w.numel() * w.element_size() for w in weights) > JOINED_BYTES:
        return lambda given: torch.cat([module(given) for module in modules], dim=-1)
    biases = [module.bias for module in modules if module.bias is not None]
    bias = torch.cat(biases) if len(biases) == len(modules) else None
    return partial(functional.linear, weight=torch.cat(weights), bias=bias)


def rms(norm: Any, values: Tensor) -> Tensor:
    """The root-mean-square norm of the last dimension, as the module does it."""
    return functional.rms_norm(values, norm.weight.shape, norm.weight, norm.variance_epsilon)


def rotated(values_BXD: Tensor, cos_B1D: Tensor, sin_B1D: Tensor) -> Tensor:
    """Rotary position embedding of one token of each row (arXiv:2104.09864)."""
    low, high = values_BXD.chunk(2, dim=-1)
    return values_BXD * cos_B1D + torch.cat([-high, low], dim=-1) * sin_B1D
