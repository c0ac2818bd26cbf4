"""An engine's copy of the weights is the policy's, and is known to be."""

from pathlib import Path

import pytest
import torch

from posttrain.engines import Request, Sampling
from posttrain.engines.pieces import (
    Written,
    check_copy,
    completions,
    fresh_pieces,
    mixed,
    plain_weights,
    probe_ids,
    resumed_pieces,
    weight_version,
)
from posttrain.errors import DataError, Fault
from posttrain.policies import Policy, chat_ids, load_policy

FAULT = Fault("it holds other weights", "engine", "for a reason", "mend it")


@pytest.fixture
def policy(tiny_policy: Path) -> Policy:
    return load_policy(tiny_policy)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_of_the_optimiser_changes_the_version(policy: Policy, fused: bool) -> None:
    before = weight_version(policy.model)
    assert weight_version(policy.model) == before
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-5, fused=fused)
    policy.model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimizer.step()
    assert weight_version(policy.model) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_past_autograd_changes_the_version(policy: Policy, dtype: torch.dtype) -> None:
    model = policy.model.to(dtype)
    before = weight_version(model)
    next(model.parameters()).data[0, 0] += 1
    assert weight_version(model) != before


def test_tied_weights_are_given_once(policy: Policy) -> None:
    names = [name for name, _ in plain_weights(policy.model)]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


def test_an_adapter_is_added_to_its_base(policy: Policy) -> None:
    from peft import LoraConfig, get_peft_model

    names = [name for name, _ in policy.model.named_parameters()]
    adapter = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    tuned = get_peft_model(policy.model, adapter)
    found = {name: value.clone() for name, value in plain_weights(tuned)}
    merged = dict(tuned.merge_and_unload().named_parameters())
    assert list(found) == names
    assert all(torch.equal(found[name], merged[name]) for name in names)


def test_seeds_differ_by_every_number() -> None:
    seeds = [mixed(s, p, g) for s in range(4) for p in range(4) for g in range(4)]
    assert len(set(seeds)) == 64
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert mixed(1, 12) != mixed(11, 2)


def test_a_resumed_piece_goes_on_from_what_is_written(policy: Policy) -> None:
    start = chat_ids(policy.tokenizer, "2 + 3?")
    fresh, later = resumed_pieces(
        policy, [Request("2 + 3?", 7, 9), Request("2 + 3?", 7, 4, written=(5, 6))]
    )
    assert (fresh.prefix, fresh.room) == (tuple(start), 9)
    assert (later.prefix, later.room) == ((*start, 5, 6), 4)
    assert fresh.seed != later.seed


def test_pieces_of_a_prompt_stand_together(policy: Policy) -> None:
    pieces = fresh_pieces(policy, ["a", "b"], Sampling(samples=2, max_new_tokens=3, seed=1))
    assert [p.prefix for p in pieces] == [
        tuple(chat_ids(policy.tokenizer, text)) for text in ("a", "a", "b", "b")
    ]
    assert len({p.seed for p in pieces}) == 4


def test_a_completion_ends_by_a_stop_token_alone(policy: Policy) -> None:
    end = int(policy.tokenizer.eos_token_id)
    written = [Written((9, end), (-1.0, -2.0)), Written((9, 8), (-1.0, -1.0)), Written()]
    found = completions(policy, written, Sampling())
    assert [c.truncated for c in found] == [False, True, True]
    assert [c.text for c in found] == [policy.tokenizer.decode(ids) for ids in ([9], [9, 8], [])]
    (stopped,) = completions(policy, written[1:2], Sampling(stop=(8,)))
    assert not stopped.truncated


def test_another_copy_is_refused(policy: Policy) -> None:
    ids = probe_ids(policy)
    with torch.no_grad():
        logp_TV = policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    own = [logp_TV[at, token].item() for at, token in enumerate(ids[1:])]
    check_copy(policy, own, 1e-4, FAULT)
    with pytest.raises(DataError, match=r"differ by 0\.01 nats, 0\.001 are allowed; for a reason"):
        check_copy(policy, [*own[:-1], own[-1] + 0.01], 1e-3, FAULT)
    with pytest.raises(DataError, match="nan"):
        check_copy(policy, [*own[:-1], float("nan")], 1e-3, FAULT)
