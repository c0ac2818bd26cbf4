"""A policy folder is read and written without loss, and prompts tokenise as chats."""

from pathlib import Path

import pytest
import torch

from posttrain.artifacts import content_files
from posttrain.errors import DataError
from posttrain.policies import chat_ids, load_policy, response_ids, save_policy


def test_saved_twice_gives_the_same_bytes(tiny_policy: Path, tmp_path: Path) -> None:
    save_policy(*load_policy(tiny_policy), tmp_path / "first")
    save_policy(*load_policy(tmp_path / "first"), tmp_path / "elsewhere" / "second")
    assert content_files(tmp_path / "first") == content_files(tmp_path / "elsewhere" / "second")
    assert b"first" not in (tmp_path / "elsewhere" / "second" / "config.json").read_bytes()


def test_weights_survive(tiny_policy: Path, tmp_path: Path) -> None:
    model, tokenizer = load_policy(tiny_policy)
    save_policy(model, tokenizer, tmp_path / "copy")
    again = load_policy(tmp_path / "copy").model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_an_adapter_is_merged(tiny_policy: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model, tokenizer = load_policy(tiny_policy)
    adapted = get_peft_model(
        model, LoraConfig(target_modules="all-linear", init_lora_weights=False)
    ).eval()
    ids = torch.tensor([chat_ids(tokenizer, "2 + 3 = ?")])
    with torch.no_grad():
        expected = adapted(ids).logits
    save_policy(adapted, tokenizer, tmp_path / "merged")
    assert not list((tmp_path / "merged").glob("adapter*"))
    merged = load_policy(tmp_path / "merged").model
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, expected, atol=1e-5)
        assert not torch.allclose(load_policy(tiny_policy).model(ids).logits, expected, atol=1e-3)


def test_prompt_and_response_join_into_the_chat(tiny_policy: Path) -> None:
    tokenizer = load_policy(tiny_policy).tokenizer
    chat = [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5\n#### 5"}]
    whole = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
    joined = chat_ids(tokenizer, "2 + 3?") + response_ids(tokenizer, "5\n#### 5")
    assert whole[: len(joined)] == joined
    assert response_ids(tokenizer, "") == [tokenizer.eos_token_id]


def test_a_folder_without_a_model_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a policy folder"):
        load_policy(tmp_path)


def test_a_damaged_weight_file_is_a_data_error(tiny_policy: Path, tmp_path: Path) -> None:
    save_policy(*load_policy(tiny_policy), tmp_path / "p")
    weights = tmp_path / "p" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DataError, match="not a policy folder"):
        load_policy(tmp_path / "p")


def test_every_fault_of_a_tokenizer_is_told(tiny_policy: Path, tmp_path: Path) -> None:
    model, tokenizer = load_policy(tiny_policy)
    tokenizer.eos_token = None
    tokenizer.chat_template = None
    save_policy(model, tokenizer, tmp_path / "p")
    with pytest.raises(DataError) as caught:
        load_policy(tmp_path / "p")
    assert len(caught.value.faults) == 2


def test_missing_weights_are_a_data_error_and_never_random(
    tiny_policy: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    save_policy(*load_policy(tiny_policy), tmp_path / "p")
    weights = load_file(tmp_path / "p" / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "p" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="missing"):
        load_policy(tmp_path / "p")
