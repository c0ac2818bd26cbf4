"""The committed tokenizer: any text round-trips, digits stand alone, chat prefixes are exact."""

import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import posttrain.base
from posttrain.base.pretrain import build_tokenizer
from posttrain.base.tokenizer import END_OF_TEXT, PAD, TURN_END, TURN_START, train_tokenizer

TINY = Path(posttrain.base.__file__).parent / "tiny"
TOKENIZER = PreTrainedTokenizerFast.from_pretrained(TINY)
SPECIAL = re.compile(r"<\|(endoftext|pad|im_start|im_end)\|>")
plain_text = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda text: SPECIAL.search(text) is None
)


@given(plain_text)
@example("Zo\u00eb's 12 \U0001f34e cost \u20ac3.50\r\n\ttab  two spaces \u0665")
def test_any_text_round_trips(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids) == text


def test_every_digit_is_a_token() -> None:
    for text in ("1234567890", "a12 + 345 = 19\n#### 57"):
        tokens = TOKENIZER.tokenize(text)
        digits = [token for token in tokens if any(c.isdigit() for c in token)]
        assert digits == [c for c in text if c.isdigit()]


def test_special_tokens_are_told_apart() -> None:
    ids = TOKENIZER.convert_tokens_to_ids([END_OF_TEXT, PAD, TURN_START, TURN_END])
    assert ids == [0, 1, 2, 3]
    assert TOKENIZER.pad_token == PAD
    assert TOKENIZER.eos_token == TURN_END
    assert TOKENIZER.bos_token is None
    assert len(TOKENIZER) <= 1024


def test_the_generation_prompt() -> None:
    turn = [{"role": "user", "content": "Hi"}]
    prompt = TOKENIZER.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@given(plain_text, plain_text)
@example("Ann has 12 apples.", "12 + 7 = 19\n#### 19")
@example(" \n", "\n\n ")
def test_a_response_leaves_its_prompt_untouched(prompt: str, response: str) -> None:
    asked = [{"role": "user", "content": prompt}]
    told = [*asked, {"role": "assistant", "content": response}]
    before = TOKENIZER.apply_chat_template(asked, add_generation_prompt=True)["input_ids"]
    whole = TOKENIZER.apply_chat_template(told, return_dict=True, return_assistant_tokens_mask=True)
    written = TOKENIZER(response)["input_ids"]
    suffix = TOKENIZER(f"{TURN_END}\n")["input_ids"]
    assert whole["input_ids"] == [*before, *written, *suffix]
    assert whole["assistant_masks"] == [0] * len(before) + [1] * (len(written) + 1) + [0]


def test_the_recipe_builds_the_committed_tokenizer() -> None:
    built = build_tokenizer(seed=0)
    assert built.get_vocab() == TOKENIZER.get_vocab()
    assert built.chat_template == TOKENIZER.chat_template


def test_training_is_deterministic() -> None:
    first, second = (train_tokenizer(["Ann has 12 pens."] * 3) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()
