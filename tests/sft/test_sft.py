"""The sft stage: it learns, resumes to the same bytes, and packs without leaks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.artifacts import content_files, write_rows
from posttrain.errors import ConfigError, DataError
from posttrain.hf_trainer import is_complete, latest_checkpoint, mark_complete
from posttrain.journal import Journal, read_curves
from posttrain.policies import chat_ids, load_policy, response_ids
from posttrain.records import Demonstration, content_id
from posttrain.sft.stage import SftConfig, run, sft_trainer
from posttrain.token_rows import token_loss, token_rows
from posttrain.training import held_out, row_order

SMALL = {"learning_rate": 5e-3, "batch_size": 4, "log_every": 1, "max_length": 128}


def demonstration(number: int, response: str | None = None) -> Demonstration:
    prompt = f"What is {number} + {number}?"
    response = response or f"{number} + {number} = {2 * number}\n#### {2 * number}"
    return Demonstration(
        id=content_id(prompt, response),
        prompt_id=content_id("arithmetic", prompt),
        prompt=prompt,
        response=response,
        reward=1.0,
        source="test",
    )


@pytest.fixture
def demonstrations(tmp_path: Path, seal: Callable[..., object]) -> Path:
    folder = tmp_path / "demonstrations"
    write_rows(folder, (demonstration(number) for number in range(24)))
    seal(folder, "Demonstration")
    return folder


class KilledAt(Journal):
    """A journal that dies at a step, as a preempted pod does."""

    step = 3

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        if done == self.step:
            raise KeyboardInterrupt


def test_learns_and_writes_a_plain_policy(
    tiny_policy: Path, demonstrations: Path, tmp_path: Path, journal: Journal
) -> None:
    config = SftConfig(epochs=2, eval_share=0.2, **SMALL)
    report = run(
        config,
        policy=tiny_policy,
        demonstrations=demonstrations,
        trained=tmp_path / "trained",
        journal=journal,
    )
    assert report.rows + report.held_out_rows == 24
    assert report.held_out_rows > 0
    assert report.steps == -(-2 * report.rows // 4)
    assert report.held_out_loss_before is not None
    assert report.held_out_loss_after is not None
    assert report.held_out_loss_after < report.held_out_loss_before
    assert report.train_loss_last < report.train_loss_first
    names = set(content_files(tmp_path / "trained"))
    assert names == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    points = list(read_curves(journal.curves))
    assert {p.step for p in points if p.name == "loss"} == set(range(1, report.steps + 1))


@pytest.mark.parametrize("rank", [0, 4])
def test_a_killed_run_resumes_to_the_same_bytes(
    rank: int, tiny_policy: Path, demonstrations: Path, tmp_path: Path
) -> None:
    config = SftConfig(
        max_steps=5, checkpoint_every=2, lora_rank=rank, lora_dropout=0.1, eval_share=0.1, **SMALL
    )
    ports = {"policy": tiny_policy, "demonstrations": demonstrations}
    whole = run(config, **ports, trained=tmp_path / "whole", journal=Journal(tmp_path / "a"))
    with pytest.raises(KeyboardInterrupt):
        run(config, **ports, trained=tmp_path / "torn", journal=KilledAt(tmp_path / "b"))
    half_saved = tmp_path / "b/scratch/checkpoint-4"
    half_saved.mkdir()
    (half_saved / "model.safetensors").write_bytes(b"torn")
    assert latest_checkpoint(tmp_path / "b/scratch") == tmp_path / "b/scratch/checkpoint-2"
    resumed = run(config, **ports, trained=tmp_path / "resumed", journal=Journal(tmp_path / "b"))
    assert content_files(tmp_path / "resumed") == content_files(tmp_path / "whole")
    assert resumed == whole
    again = run(config, **ports, trained=tmp_path / "again", journal=Journal(tmp_path / "b"))
    assert again == whole
    assert content_files(tmp_path / "again") == content_files(tmp_path / "whole")


def test_packing_keeps_documents_apart(tiny_policy: Path, tmp_path: Path, journal: Journal) -> None:
    policy = load_policy(tiny_policy)
    rows = [demonstration(number) for number in range(6)]
    tokens = token_rows(policy.tokenizer, [r.prompt for r in rows], [r.response for r in rows])
    apart = token_loss(policy.model, tokens, 2)
    trainer = sft_trainer(
        SftConfig(packing=True, **SMALL), policy.model, policy.tokenizer, tokens, journal
    )
    packed = trainer.data_collator([trainer.train_dataset[i] for i in range(2)])
    assert max(map(len, trainer.train_dataset["seq_lengths"])) > 1
    together = trainer.compute_loss(trainer.model.train(), dict(packed))
    kept = int((packed["labels"] != -100).sum())
    assert kept == sum(label != -100 for row in tokens for label in row.labels)
    assert float(together.detach()) == pytest.approx(apart, abs=1e-5)


def test_only_the_assistants_tokens_are_learned(tiny_policy: Path) -> None:
    tokenizer = load_policy(tiny_policy).tokenizer
    row = demonstration(7)
    (tokens,) = token_rows(tokenizer, [row.prompt], [row.response])
    learned = [label for label in tokens.labels if label != -100]
    prompt = chat_ids(tokenizer, row.prompt)
    assert learned == response_ids(tokenizer, row.response)
    assert tokens.ids[: len(prompt) + len(learned)] == prompt + learned


def test_token_loss_counts_each_token_once(tiny_policy: Path) -> None:
    policy = load_policy(tiny_policy)
    rows = token_rows(policy.tokenizer, ["a", "b"], ["x", "a much longer response, y"])
    one_by_one = []
    for row in rows:
        logits = policy.model(input_ids=torch.tensor([row.ids])).logits[0, :-1]
        logps = logits.log_softmax(-1)
        targets = zip(logps, row.labels[1:], strict=True)
        one_by_one += [-float(logp[label]) for logp, label in targets if label != -100]
    expected = sum(one_by_one) / len(one_by_one)
    assert token_loss(policy.model, rows, 2) == pytest.approx(expected, abs=1e-5)


def test_rows_too_long_are_dropped_and_counted(
    tiny_policy: Path, tmp_path: Path, journal: Journal
) -> None:
    rows = [demonstration(1), demonstration(2), demonstration(3, "word " * 300 + "#### 6")]
    write_rows(tmp_path / "in", rows)
    config = SftConfig(max_steps=1, eval_share=0, **SMALL)
    report = run(
        config,
        policy=tiny_policy,
        demonstrations=tmp_path / "in",
        trained=tmp_path / "out",
        journal=journal,
    )
    assert (report.rows, report.too_long) == (2, 1)
    assert report.held_out_loss_before is None


def test_nothing_to_learn_is_a_data_error(
    tiny_policy: Path, tmp_path: Path, journal: Journal
) -> None:
    write_rows(tmp_path / "empty", [])
    write_rows(tmp_path / "long", [demonstration(1, "word " * 300)])
    for name in ("empty", "long"):
        with pytest.raises(DataError, match="nothing to learn"):
            run(
                SftConfig(**SMALL),
                policy=tiny_policy,
                demonstrations=tmp_path / name,
                trained=tmp_path / "out",
                journal=journal,
            )


def test_a_template_that_does_not_teach_the_end_is_refused(
    tiny_policy: Path, demonstrations: Path, tmp_path: Path, journal: Journal
) -> None:
    tokenizer = load_policy(tiny_policy).tokenizer
    template = tokenizer.chat_template
    policy = tmp_path / "policy"
    policy.mkdir()
    for file in tiny_policy.iterdir():
        (policy / file.name).write_bytes(file.read_bytes())
    assert "<|im_end|>' -}}{%- endgeneration" in template
    late = template.replace(
        "+ '<|im_end|>' -}}{%- endgeneration -%}", "-}}{%- endgeneration -%}{{- '<|im_end|>' -}}"
    )
    (policy / "chat_template.jinja").write_text(late)
    with pytest.raises(ConfigError, match="end of the turn is not learned"):
        run(
            SftConfig(**SMALL),
            policy=policy,
            demonstrations=demonstrations,
            trained=tmp_path / "out",
            journal=journal,
        )


def test_micro_batches_must_fill_the_batch() -> None:
    with pytest.raises(ValueError, match="micro_batch_size 3 does not divide batch_size 8"):
        SftConfig(batch_size=8, micro_batch_size=3)


def test_row_order_covers_every_row_and_groups_lengths() -> None:
    lengths = [(7 * i) % 50 + 10 for i in range(100)]
    config = SftConfig(batch_size=10, epochs=2, seed=1)
    order = row_order(lengths, config)
    assert sorted(order) == sorted([*range(100)] * 2)
    assert order == row_order(lengths, config)
    assert order != row_order(lengths, config.model_copy(update={"seed": 2}))

    def padding(indices: list[int]) -> int:
        batches = [indices[at : at + 10] for at in range(0, len(indices), 10)]
        return sum(max(lengths[i] for i in b) - lengths[j] for b in batches for j in b)

    shuffled = row_order(lengths, config.model_copy(update={"group_by_length": False}))
    assert padding(order) < padding(shuffled) / 4
    capped = config.model_copy(update={"max_steps": 3})
    assert len(row_order(lengths, capped)) == 30


def test_the_held_out_share_is_stable_and_about_right() -> None:
    ids = [content_id("x", str(i)) for i in range(2000)]
    chosen = {i for i in ids if held_out(i, 0.1)}
    assert 140 < len(chosen) < 260
    assert chosen <= {i for i in ids if held_out(i, 0.2)}


def test_a_checkpoint_counts_only_when_every_file_is_there_in_full(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-2"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"12345678")
    assert not is_complete(checkpoint)
    mark_complete(checkpoint)
    assert is_complete(checkpoint)
    (checkpoint / "model.safetensors").write_bytes(b"1234")
    assert not is_complete(checkpoint)
    (checkpoint / "complete.json").write_text(json.dumps([1]))
    assert not is_complete(checkpoint)
    assert latest_checkpoint(tmp_path) is None
    assert not checkpoint.exists()
