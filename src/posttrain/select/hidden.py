"""Hidden states of a policy: one vector for each prompt."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from posttrain.engines.likelihood import hidden_states, pad_left
from posttrain.policies import Policy, batch_ids, chat_texts


@torch.no_grad()
def last_states(policy: Policy, prompts: Sequence[str], batch: int) -> Tensor:
    """The last layer's state [N, H] at the last token of each prompt's chat, in float32."""
    model, tokenizer = policy
    ids = batch_ids(tokenizer, chat_texts(tokenizer, list(prompts)))
    found: list[Tensor] = []
    for start in range(0, len(ids), batch):
        piece = pad_left(ids[start : start + batch], int(tokenizer.pad_token_id), model.device)
        states_BTH = hidden_states(model, piece, DynamicCache(config=model.config))
        found.append(states_BTH[:, -1].float().cpu())
    return torch.cat(found)
