"""Sampling among the likeliest tokens, and what it does to a token's log-prob. Shapes: B rows,
V vocabulary."""

import torch
from torch import Tensor

from posttrain.engines.sampling import Sampling


def keep_likely(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Rule out what top-k and then top-p (nucleus, arXiv:1904.09751) leave out."""
    if 0 < sampling.top_k < logits_BV.shape[-1]:
        least_B1 = logits_BV.topk(sampling.top_k).values[..., -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(descending=True, stable=True)
        before_BV = sorted_BV.softmax(dim=-1).cumsum(dim=-1) - sorted_BV.softmax(dim=-1)
        sorted_BV = sorted_BV.masked_fill(before_BV >= sampling.top_p, -torch.inf)
        logits_BV = torch.empty_like(sorted_BV).scatter(-1, order_BV, sorted_BV)
    return logits_BV


def renormalised(logps: Tensor, scaled: Tensor, tokens: Tensor, sampling: Sampling) -> Tensor:
    """The same log-probs with the gradient of those that the tokens were drawn by.

    A draw among the likeliest is by log p - log M, M the mass of what is kept. With the gradient of
    log p alone each update also moves mass to or from what can never be drawn, and so never be
    mended (DeepSeek-V3.2 keeps the sampling mask for it, arXiv:2512.02556). Here the tokens that
    are kept now count; `scaled`: logits over the temperature [..., V].
    """
    kept = keep_likely(scaled.detach(), sampling).isfinite()
    kept = kept.scatter(-1, tokens[..., None], True)
    mass = scaled.masked_fill(~kept, -torch.inf).logsumexp(-1) - scaled.logsumexp(-1)
    return logps - (mass - mass.detach())
