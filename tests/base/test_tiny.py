"""The committed base model loads, is as small as its card says, and can do its tasks."""

import re
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import posttrain.base
from posttrain.tasks import BANDS, TASKS, generate_many

TINY = Path(posttrain.base.__file__).parent / "tiny"
PARAMETERS = 1_722_304


def _accuracy(layout: str, end: str, *, sampled: bool) -> float:
    """Share of right answers to 64 held-out word problems, greedy or at temperature 1."""
    task = TASKS["arithmetic"]
    tokenizer = AutoTokenizer.from_pretrained(TINY, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    drawn = generate_many(task, 64, dict.fromkeys(BANDS, 1.0), "eval", seed=0)
    prompts = tokenizer(
        [layout.format(problem.text) for problem in drawn], return_tensors="pt", padding=True
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ids = model.generate(
            **prompts,
            max_new_tokens=64,
            do_sample=sampled,
            top_k=0,
            eos_token_id=tokenizer.convert_tokens_to_ids(end),
        )
    responses = tokenizer.batch_decode(
        ids[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
    )
    right = [
        task.verify(problem.text, problem.answer, unmarked(response))
        for problem, response in zip(drawn, responses, strict=True)
    ]
    return sum(right) / len(right)


def unmarked(text: str) -> str:
    """The text without the marks and notes that a part of the corpus holds."""
    return re.sub(r"( (right|wrong)|\nChecked: \w+)$", "", text, flags=re.MULTILINE)


def test_size_is_as_stated() -> None:
    model = AutoModelForCausalLM.from_pretrained(TINY)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS
    assert f"{PARAMETERS:,}" in (TINY / "README.md").read_text()
    assert (TINY / "model.safetensors").stat().st_size < 8_000_000
    assert model.config.tie_word_embeddings
    assert model.config.max_position_embeddings >= 1024
    assert model.dtype == torch.float32


def test_it_answers_plain_problems() -> None:
    assert _accuracy("Problem: {}\nWorking:\n", "<|endoftext|>", sampled=False) >= 0.7


def test_it_cannot_hold_a_chat_yet() -> None:
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    assert _accuracy(chat, "<|im_end|>", sampled=True) <= 0.2
