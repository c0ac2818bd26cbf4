"""Pretrain the embedded base model: `python -m posttrain.base.pretrain --out DIR --seed 0`.

-> model folder (config, weights, tokenizer with its chat template). Next-token loss on
plain-text documents under bfloat16 autocast (twice as fast as float32 on a CPU with
AVX512-BF16). Left out on purpose: checkpoints and resuming, as the whole run takes
minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from posttrain.base.corpus import VOCABULARY_LINES, Mix, documents
from posttrain.base.tokenizer import END_OF_TEXT, train_tokenizer


class Phase(NamedTuple):
    """A part of the training: what of, how many steps, its share of the peak rates, and what the
    marks `right` and `wrong` weigh in the loss."""

    mix: Mix
    steps: int
    peak: float
    mark_weight: float = 1.0


TOKENS_PER_BATCH = 4096
PHASES = (
    Phase(Mix(), steps=1600, peak=1.0),
    # Marks at every line teach to tell right from wrong, which a judge builds on; they come
    # second, for they presuppose that the model can do the sums.
    Phase(Mix(marked=0.6), steps=1000, peak=1.0, mark_weight=5.0),
)
MATRIX_RATE = 0.02
VECTOR_RATE = 3e-3
WARMUP_STEPS = 60
# A given problem is random by construction: its tokens teach little and drown the working.
GIVEN_WEIGHT = 0.1
TOKENIZER_DOCUMENTS = 20_000
POOL = 2048


class Batch(NamedTuple):
    """Token ids and loss weights (D, T) of D documents, padded to T tokens."""

    ids: Tensor
    weights: Tensor


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the first documents of the corpus."""
    stream = itertools.islice(documents(random.Random(seed)), TOKENIZER_DOCUMENTS)
    texts = (given + rest for given, rest in stream)
    return train_tokenizer(itertools.chain(texts, VOCABULARY_LINES * 100))


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A freshly initialised Qwen3 of 1.7M parameters, its embeddings tied."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def batches(
    tokenizer: PreTrainedTokenizerFast, seed: int, mix: Mix = Mix(), mark_weight: float = 1.0
) -> Iterator[Batch]:
    """Documents of like length together, so that hardly anything is padding.

    One document a row, rather than packed rows: the numbers to copy then stand out at
    once, and a model this small learns several times faster.
    """
    rng = random.Random(seed)
    stream = documents(rng, mix)
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    marks = torch.tensor([ids[0] for ids in tokenizer([" right", " wrong"])["input_ids"]])
    while True:
        pool = list(itertools.islice(stream, POOL))
        given = tokenizer([document.given for document in pool])["input_ids"]
        rest = tokenizer([document.rest for document in pool])["input_ids"]
        rows = [(g + r + [end], len(g)) for g, r in zip(given, rest, strict=True)]
        rows.sort(key=lambda row: len(row[0]))
        grouped = list(_group(rows))
        rng.shuffle(grouped)
        for group in grouped:
            batch = _pad(group, tokenizer.pad_token_id)
            batch.weights[torch.isin(batch.ids, marks)] *= mark_weight
            yield batch


def _group(rows: list[tuple[list[int], int]]) -> Iterator[list[tuple[list[int], int]]]:
    """Cut the rows, short ones first, into groups of about TOKENS_PER_BATCH tokens."""
    group: list[tuple[list[int], int]] = []
    for row in rows:
        group.append(row)
        if len(group) * len(row[0]) >= TOKENS_PER_BATCH:
            yield group
            group = []


def _pad(rows: list[tuple[list[int], int]], pad: int) -> Batch:
    longest = max(len(ids) for ids, _ in rows)
    ids_DT = torch.full((len(rows), longest), pad)
    weights_DT = torch.zeros(len(rows), longest)
    for row, (ids, given) in enumerate(rows):
        ids_DT[row, : len(ids)] = torch.tensor(ids)
        weights_DT[row, : len(ids)] = 1.0
        weights_DT[row, :given] = GIVEN_WEIGHT
    return Batch(ids_DT, weights_DT)


def rate(step: int, steps: int) -> float:
    """The share of the peak learning rate: warm-up, a plateau, a linear end over the last half."""
    return min((step + 1) / WARMUP_STEPS, 1.0, max(2 * (1 - step / steps), 0.02))


def optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon (arXiv:2502.16982) for the matrices, AdamW for the embedding and the norms."""
    named = list(model.model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim < 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(others, lr=VECTOR_RATE, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
    ]


def train(model: Qwen3ForCausalLM, stream: Iterator[Batch], steps: int, share: float = 1.0) -> None:
    """Train in place at a share of the peak rates; prints the weighted loss (nats a token) and
    the speed every 100 steps."""
    pair = optimizers(model)
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in pair]
    model.train()
    start = time.monotonic()
    recent, tokens = 0.0, 0
    for step, batch in enumerate(itertools.islice(stream, steps)):
        for optimizer, peak in zip(pair, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = share * peak * rate(step, steps)
        loss = _loss(model, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in pair:
            optimizer.step()
            optimizer.zero_grad()
        recent, tokens = recent + loss.item() / 100, tokens + batch.ids.numel()
        if (step + 1) % 100 == 0:
            speed = tokens / (time.monotonic() - start)
            print(f"step {step + 1}/{steps} loss {recent:.4f} {speed:.0f} tokens/s", flush=True)
            recent = 0.0


def _loss(model: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    """Weighted mean of the next-token loss."""
    with torch.autocast("cpu", torch.bfloat16):
        logits_DTV = model(input_ids=batch.ids, use_cache=False).logits
    losses = functional.cross_entropy(
        logits_DTV[:, :-1].float().flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="none"
    )
    weights = batch.weights[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def main() -> None:
    """Write the model folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of every phase's steps")
    arguments = parser.parse_args()
    tokenizer = build_tokenizer(arguments.seed)
    model = build_model(tokenizer, arguments.seed)
    for number, phase in enumerate(PHASES, 1):
        stream = batches(tokenizer, arguments.seed + number, phase.mix, phase.mark_weight)
        train(model, stream, round(phase.steps * arguments.scale), phase.peak)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
