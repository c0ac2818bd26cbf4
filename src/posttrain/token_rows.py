"""Conversations as tokens: what the policy reads, and which tokens it is taught to write."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from posttrain.errors import ConfigError, Fault
from posttrain.policies import chat_ids


class TokenRow(NamedTuple):
    """Token ids of a conversation, and its labels: -100 where the assistant did not write."""

    ids: list[int]
    labels: list[int]


def token_rows(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], responses: Sequence[str]
) -> list[TokenRow]:
    """Render conversations with the chat template; its generation markers make the labels."""
    chats = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    if not chats:
        return []
    encoded = tokenizer.apply_chat_template(
        chats,
        chat_template=training_template(tokenizer),
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return [
        TokenRow(ids, [token if kept else -100 for token, kept in zip(ids, mask, strict=True)])
        for ids, mask in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)
    ]


def training_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The chat template to train with: the tokenizer's own (None) or TRL's marked copy of it.

    Raises ConfigError when neither marks what the assistant writes.
    """
    if "generation" in str(tokenizer.chat_template).replace("add_generation_prompt", ""):
        return None
    from trl import get_training_chat_template

    try:
        template: str | None = get_training_chat_template(tokenizer)
    except ValueError:
        raise ConfigError(
            Fault(
                "chat template without generation markers",
                f"{tokenizer.name_or_path}/chat_template.jinja",
                "they say which tokens are the assistant's, and only those are learned",
                "put {% generation %} and {% endgeneration %} around the assistant's content",
            )
        ) from None
    return template


def check_rows(tokenizer: PreTrainedTokenizerBase, rows: Sequence[TokenRow], prompt: str) -> None:
    """Raise ConfigError unless the first row (of `prompt`) reads as it will when sampling.

    The learned tokens must follow the very tokens that the engine gives as the prompt, and
    hold the end-of-turn token; else the policy learns to answer another question, or never
    to stop.
    """
    first = rows[0]
    start = next((at for at, label in enumerate(first.labels) if label != -100), len(first.ids))
    faults = []
    if first.ids[:start] != chat_ids(tokenizer, prompt):
        faults.append(
            Fault(
                "training and sampling prompts differ",
                f"{tokenizer.name_or_path}/chat_template.jinja",
                f"training ends the prompt with {tokenizer.decode(first.ids[:start][-8:])!r},"
                f" sampling with {tokenizer.decode(chat_ids(tokenizer, prompt)[-8:])!r}",
                "let add_generation_prompt write what stands before the generation marker",
            )
        )
    if tokenizer.eos_token_id not in first.labels:
        faults.append(
            Fault(
                "the end of the turn is not learned",
                f"{tokenizer.name_or_path}/chat_template.jinja",
                f"{tokenizer.eos_token} is not among the assistant's tokens",
                "put it before {% endgeneration %}",
            )
        )
    if faults:
        raise ConfigError(*faults)


@torch.no_grad()
def token_loss(model: Any, rows: Iterable[TokenRow], batch_size: int) -> float:
    """Mean negative log-likelihood in nats of the labelled tokens, each token counted once."""
    ordered = sorted(rows, key=lambda row: -len(row.ids))
    training = model.training
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(ordered), batch_size):
        ids_BT, labels_BT, mask_BT = padded(ordered[start : start + batch_size], model.device)
        logits_BTV = model(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1).float(), labels_BT[:, 1:].flatten(), reduction="sum"
        )
        total += float(loss)
        count += int((labels_BT[:, 1:] != -100).sum())
    model.train(training)
    return total / count if count else float("nan")


def padded(
    rows: Sequence[TokenRow], device: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows as right-padded ids, labels and attention mask, each [B, T]."""
    longest = max(len(row.ids) for row in rows)
    ids_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    labels_BT = torch.full_like(ids_BT, -100)
    mask_BT = torch.zeros_like(ids_BT)
    for at, row in enumerate(rows):
        ids_BT[at, : len(row.ids)] = torch.tensor(row.ids)
        labels_BT[at, : len(row.ids)] = torch.tensor(row.labels)
        mask_BT[at, : len(row.ids)] = 1
    return ids_BT.to(device), labels_BT.to(device), mask_BT.to(device)
