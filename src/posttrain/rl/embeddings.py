"""What prompts are like, by the policy that a run began with: the same at every step."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from posttrain.policies import batch_ids, load_policy
from posttrain.records import Prompt

Embed = Callable[[Sequence[Prompt]], Tensor]


def start_embeddings(folder: Path) -> Embed:
    """Prompts -> one vector each [P, H]: the mean of its tokens' input embeddings, float64.

    The policy is read when first asked, and its vectors are kept, not its weights: those that are
    being trained would make each prediction of another space than the one before.
    """
    known: dict[str, Tensor] = {}

    def embed(prompts: Sequence[Prompt]) -> Tensor:
        missing = [prompt for prompt in prompts if prompt.id not in known]
        if missing:
            model, tokenizer = load_policy(folder)
            table_VH = model.get_input_embeddings().weight.detach().double().cpu()
            ids = batch_ids(tokenizer, [prompt.text for prompt in missing])
            known.update(
                (p.id, table_VH[own].mean(dim=0)) for p, own in zip(missing, ids, strict=True)
            )
        return torch.stack([known[prompt.id] for prompt in prompts])

    return embed
