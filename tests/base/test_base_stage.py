"""The base stage: what it brings in is a policy, and what cannot be one is refused with reasons."""

import json
import shutil
from pathlib import Path

import pytest

from posttrain.artifacts import content_files
from posttrain.base.stage import EMBEDDED, BaseConfig, run, still_holds, tensor_sizes
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.policies import load_policy


def bring(model: str | Path, tmp_path: Path, journal: Journal) -> Path:
    run(BaseConfig(model=str(model)), policy=tmp_path / "policy", journal=journal)
    return tmp_path / "policy"


def test_the_embedded_model_becomes_a_policy(tmp_path: Path, journal: Journal) -> None:
    report = run(BaseConfig(), policy=tmp_path / "policy", journal=journal)
    model, tokenizer = load_policy(tmp_path / "policy")
    assert report.parameters == sum(p.numel() for p in model.parameters())
    assert report.vocabulary == model.config.vocab_size >= len(tokenizer)
    assert report.megabytes < 8
    assert "Qwen3ForCausalLM" in report.architecture


@pytest.fixture
def folder(tiny_policy: Path, tmp_path: Path) -> Path:
    """A writable copy of a foreign policy folder."""
    return shutil.copytree(tiny_policy, tmp_path / "foreign")


def test_a_folder_is_copied_without_what_a_policy_does_not_need(
    folder: Path, tmp_path: Path, journal: Journal
) -> None:
    (folder / "optimizer.pt").write_bytes(b"pickled")
    (folder / "train.py").write_text("print()", encoding="utf-8")
    policy = bring(folder, tmp_path, journal)
    given, copied = content_files(folder), content_files(policy)
    assert copied == {name: digest for name, digest in given.items() if name in copied}
    assert given.keys() - copied.keys() == {"optimizer.pt", "train.py"}
    assert not (policy / "manifest.json").exists()
    assert load_policy(policy)


def test_a_changed_folder_makes_the_stored_policy_stale(
    folder: Path, tmp_path: Path, journal: Journal
) -> None:
    outputs = {"policy": bring(folder, tmp_path, journal)}
    config = BaseConfig(model=str(folder))
    assert still_holds(outputs, config) is None
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(settings | {"note": 1}), encoding="utf-8")
    assert still_holds(outputs, config) == "the model's folder has changed"


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def lfs_pointer(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / "model.safetensors").write_text(text, encoding="utf-8")


def truncated(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def with_remote_code(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings["auto_map"] = {"AutoModel": "code.Model"}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")


def without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def with_rewriting_template(folder: Path) -> None:
    text = "{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (pickled, "no safetensors"),
        (lfs_pointer, "not a safetensors file"),
        (truncated, "not a safetensors file"),
        (without_config, "no readable config.json"),
        (with_remote_code, "remote code"),
        (without_tokenizer, "no tokenizer"),
        (without_template, "tokenizer without a chat template"),
        (with_rewriting_template, "chat template without prefix property"),
    ],
)
def test_what_cannot_be_a_policy_is_refused(
    folder: Path, tmp_path: Path, journal: Journal, spoil: object, says: str
) -> None:
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(DataError) as caught:
        bring(folder, tmp_path, journal)
    assert [fault.what for fault in caught.value.faults] == [says]


def test_all_faults_are_told_at_once(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as caught:
        bring(tmp_path / "empty", tmp_path, journal)
    assert len(caught.value.faults) == 3


def test_an_unknown_model_is_a_configuration_error(tmp_path: Path, journal: Journal) -> None:
    with pytest.raises(ConfigError, match="no such model"):
        bring("embeded", tmp_path, journal)


def test_tensor_sizes_counts_without_reading_the_weights() -> None:
    assert tensor_sizes(EMBEDDED / "model.safetensors") > 100_000
