"""A network that says what return to expect at each token, and how it learns.

It is made of the policy that the run begins with: its first layers, and a head of one number. The
value of a token is read before the token is: at the last token of the prompt for the first one.
Nothing here is random but the head. Shapes: B responses, T tokens, H hidden width.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import ModuleList
from transformers import DynamicCache, PreTrainedTokenizerBase

from posttrain.engines.likelihood import Ids, Padded, Row, batches, pad_left, pad_right, pass_tokens
from posttrain.errors import ConfigError, Fault
from posttrain.policies import chat_ids, load_policy
from posttrain.rl.optimised import restore_into, tensors_of
from posttrain.rl.returns import discounted, written
from posttrain.rl.rollout import Group, Rollout

Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

HEAD_STD = 0.1
"""Standard deviation of the first values, in rewards: heads must differ, and know nothing yet."""

MAX_GRAD_NORM = 1.0


class Facts(NamedTuple):
    """What a value network is taught of some rollouts: the return of each token [T], and which
    tokens count; another writer's do not."""

    rollouts: list[Rollout]
    returns: list[Tensor]
    counts: list[Tensor]

    @classmethod
    def of(cls, groups: Sequence[Group], gamma: float) -> Self:
        """Discounted rewards, as `posttrain.rl.returns` has them."""
        rollouts = [rollout for group in groups for rollout in group]
        return cls(
            rollouts,
            [discounted(rollout, rollout.reward, gamma) for rollout in rollouts],
            [written(rollout) & (rollout.source != "external") for rollout in rollouts],
        )

    def some(self, places: Sequence[int]) -> "Facts":
        """Those of the rollouts at these places."""
        rollouts, returns, counts = self
        return Facts(
            [rollouts[place] for place in places],
            [returns[place] for place in places],
            [counts[place] for place in places],
        )


class ValueModel:
    """The network and its AdamW; gradients are clipped to a norm of 1."""

    def __init__(
        self, folder: Path, seed: str, *, layers: int, learning_rate: float, micro_batch_tokens: int
    ) -> None:
        policy = load_policy(folder, dtype=torch.float32)
        self.backbone = first_layers(policy.model.base_model, layers)
        self.tokenizer = policy.tokenizer
        self.pass_tokens = pass_tokens(micro_batch_tokens, self.backbone.device)
        self.head = scalar_head(self.backbone.config.hidden_size, seed).to(self.backbone.device)
        parts = {"backbone": self.backbone, "head": self.head}
        self.weights = {
            f"{part}.{name}": p for part, m in parts.items() for name, p in m.named_parameters()
        }
        self.optimizer = torch.optim.AdamW(
            self.weights.values(), lr=learning_rate, weight_decay=0.0, fused=True
        )

    def values(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """The return expected at each token of each rollout [T]; float64, on CPU."""
        rows = rows_of(self.tokenizer, rollouts)
        found = [torch.empty(0, dtype=torch.float64)] * len(rows)
        with torch.no_grad():
            for chunk in batches(rows, self.pass_tokens):
                self._keep(chunk, self.expected(chunk), found)
        return found

    def learn(self, facts: Facts, *, epochs: int = 1, clip: float | None = None) -> list[Tensor]:
        """Step `epochs` times towards the returns; the values [T] from before the first step.

        The loss is the mean of `square_error` over the tokens that count.
        """
        rows = rows_of(self.tokenizer, facts.rollouts)
        total = sum(int(own_T.sum()) for own_T in facts.counts)
        before = [torch.empty(0, dtype=torch.float64)] * len(rows)
        for epoch in range(epochs):
            for chunk in batches(rows, self.pass_tokens):
                values_BT = self.expected(chunk)
                if not epoch:
                    self._keep(chunk, values_BT.detach(), before)
                return_BT, counts_BT, old_BT = (
                    padded(values_BT, [each[row.place] for row in chunk])
                    for each in (facts.returns, facts.counts, before)
                )
                error_BT = square_error(values_BT, return_BT, old_BT, clip)
                loss: Any = (error_BT * counts_BT).sum() / max(1, total)
                loss.backward()
            if total:
                self._step()
        return before

    def expected(self, chunk: Sequence[Row]) -> Tensor:
        """The values of a micro-batch's tokens [B, T], float32; a prompt and equal rows once."""
        device, pad = self.backbone.device, int(self.tokenizer.pad_token_id)
        distinct: dict[tuple[Ids, Ids], int] = {}
        of_row = [distinct.setdefault((row.prompt, row.response), len(distinct)) for row in chunk]
        prompts: dict[Ids, int] = {}
        owner = [prompts.setdefault(prompt, len(prompts)) for prompt, _ in distinct]
        owner_U = torch.tensor(owner, device=device)
        responses = pad_right([response for _, response in distinct], pad, device)
        prefix = pad_left(list(prompts), pad, device)
        cache = DynamicCache(config=self.backbone.config)
        states = [self._states(prefix, cache)[:, -1:][owner_U]]
        if responses.ids_BT.shape[1] > 1:
            cache.batch_select_indices(owner_U)
            seen_UT = prefix.mask_BT[owner_U]
            rest = Padded(
                responses.ids_BT[:, :-1],
                torch.cat([seen_UT, responses.mask_BT[:, :-1]], dim=1),
                responses.positions_BT[:, :-1] + seen_UT.sum(dim=1, keepdim=True),
            )
            states.append(self._states(rest, cache))
        values_UT: Tensor = self.head(torch.cat(states, dim=1)).squeeze(-1)
        return values_UT[torch.tensor(of_row, device=device)]

    def _states(self, piece: Padded, cache: DynamicCache) -> Tensor:
        states_BTH: Tensor = self.backbone(
            input_ids=piece.ids_BT,
            attention_mask=piece.mask_BT,
            position_ids=piece.positions_BT,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return states_BTH

    def _keep(self, chunk: Sequence[Row], values_BT: Tensor, found: list[Tensor]) -> None:
        for row, values_T in zip(chunk, values_BT.double().cpu(), strict=True):
            found[row.place] = values_T[: len(row.response)]

    def _step(self) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), MAX_GRAD_NORM)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the optimiser's moments, for a checkpoint."""
        return tensors_of(self.weights, self.optimizer)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        restore_into(self.weights, self.optimizer, tensors)


def rows_of(tokenizer: PreTrainedTokenizerBase, rollouts: Sequence[Rollout]) -> list[Row]:
    """The rollouts in token ids, each prompt read once."""
    texts = dict.fromkeys(rollout.prompt.text for rollout in rollouts)
    ids = {text: tuple(chat_ids(tokenizer, text)) for text in texts}
    return [Row(ids[each.prompt.text], each.tokens, place) for place, each in enumerate(rollouts)]


def padded(wanted_BT: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Rows [T] as a tensor of the wanted shape, type and device, zeros at the end."""
    made_BT = torch.zeros_like(wanted_BT)
    for at, row_T in enumerate(rows):
        made_BT[at, : len(row_T)] = row_T
    return made_BT


def square_error(value: Tensor, wanted: Tensor, old: Tensor, clip: float | None) -> Tensor:
    """(V - return)^2; with `clip` c the larger of that and the same of V kept within c of its old
    value, as PPO has it (arXiv:1707.06347; verl and OpenRLHF halve both)."""
    plain = (value - wanted).square()
    if clip is None:
        return plain
    near = old + (value - old).clamp(-clip, clip)
    return torch.maximum(plain, (near - wanted).square())


def scalar_head(width: int, seed: str) -> torch.nn.Linear:
    """A head whose values begin near 0, and differ by seed."""
    head = torch.nn.Linear(width, 1)
    source = torch.Generator().manual_seed(random.Random(f"{seed}/head").getrandbits(63))
    with torch.no_grad():
        head.weight.normal_(0, HEAD_STD / width**0.5, generator=source)
        head.bias.zero_()
    return head


def first_layers(backbone: Any, count: int) -> Any:
    """The same model with its first `count` layers only, all of them for 0."""
    config = backbone.config
    depth = config.num_hidden_layers
    stacks = [
        name
        for name, child in backbone.named_children()
        if isinstance(child, ModuleList) and len(child) == depth
    ]
    if count and (count > depth or not stacks):
        raise ConfigError(
            Fault(
                f"a critic of {count} layers cannot be cut out of the policy",
                "rl.critic.layers",
                f"it has {depth}" if stacks else "its layers are not in one stack",
                f"give at most {depth}, or 0 for all",
            )
        )
    if count:
        setattr(backbone, stacks[0], getattr(backbone, stacks[0])[:count])
        config.num_hidden_layers = count
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:count]
    return backbone


def fit(before: Sequence[Tensor], facts: Facts) -> dict[str, float]:
    """How good the values were before they were taught: mean squared error, and the share of the
    returns' variance that they explain (0 where the returns do not vary)."""
    counts = torch.cat([*facts.counts, torch.zeros(0, dtype=torch.bool)])
    if not counts.any():
        return {}
    value, wanted = torch.cat([*before])[counts], torch.cat(facts.returns)[counts]
    variance = wanted.var(correction=0)
    left = (wanted - value).var(correction=0)
    return {
        "critic/loss": float((wanted - value).square().mean()),
        "critic/explained_variance": float(1 - left / variance) if variance > 0 else 0.0,
        "critic/value": float(value.mean()),
    }
