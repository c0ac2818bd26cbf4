"""Policies: a plain Hugging Face folder in, a model and its tokenizer out, and back.

A policy folder always holds the full model: adapters are merged when it is saved, so every
stage reads every policy the same way.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from posttrain.errors import DataError, Fault

disable_progress_bar()  # the journal shows progress


class Policy(NamedTuple):
    """A causal language model in evaluation mode and its tokenizer (chat template, eos, pad)."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_policy(folder: Path, *, dtype: torch.dtype | None = None) -> Policy:
    """Read a policy folder; float32 on CPU and bfloat16 on a GPU unless `dtype` says otherwise.

    Raises DataError when the folder is not a policy or its tokenizer cannot hold a chat.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = dtype or (torch.bfloat16 if device == "cuda" else torch.float32)
    try:
        if not (folder / "config.json").is_file():
            raise OSError("it has no config.json")
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=wanted,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
        if found["missing_keys"] or found["mismatched_keys"]:
            raise ValueError(f"weights that are missing or do not fit: {found}")
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(
            Fault(
                "not a policy folder",
                str(folder),
                str(error).split("\n")[0][:300],
                "give a Hugging Face folder with config.json, *.safetensors and a tokenizer",
            )
        ) from None
    check_tokenizer(tokenizer, folder)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Policy(model.to(device).eval(), tokenizer)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Raise DataError, with every fault found, unless the tokenizer can hold a chat."""
    faults = []
    if tokenizer.eos_token_id is None:
        faults.append(
            Fault("tokenizer without eos", str(folder), "a response could not end", "set eos_token")
        )
    if not tokenizer.chat_template:
        faults.append(
            Fault(
                "tokenizer without a chat template",
                str(folder),
                "prompts are written with it",
                "add chat_template.jinja, for instance that of the instruct variant",
            )
        )
    if faults:
        raise DataError(*faults)


def save_policy(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a policy folder in safetensors; a PEFT adapter is merged into the model first.

    The same weights give the same bytes, wherever the model was read from.
    """
    merged = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
    merged.config._name_or_path = ""
    merged.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def chat_texts(tokenizer: PreTrainedTokenizerBase, prompts: list[str]) -> list[str]:
    """Each prompt as the user's turn, up to where the assistant begins to write."""
    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    rendered: list[str] = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        for chat in chats
    ]
    return rendered


def chat_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of the user's turn and the opening of the assistant's."""
    return batch_ids(tokenizer, chat_texts(tokenizer, [prompt]))[0]


def response_ids(tokenizer: PreTrainedTokenizerBase, response: str) -> list[int]:
    """Token ids of a response and the end-of-turn token; never empty."""
    return [*batch_ids(tokenizer, [response])[0], int(tokenizer.eos_token_id)]


def batch_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """Token ids of texts as they stand, no special token added."""
    if not texts:
        return []
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids
