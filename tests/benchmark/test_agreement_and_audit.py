"""Two engines compared, and labels audited: numbers by hand, and what is said of a difference."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.benchmark.agreement import agreement, leads, subset
from posttrain.benchmark.audit import audited, ranks, read_audit, spearman
from posttrain.benchmark.suites import SUITES, Item
from posttrain.benchmark.suites.sources import prompt_of
from posttrain.engines import Completion, Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import ConfigError, DataError
from posttrain.policies import load_policy
from posttrain.records import Sample

ITEMS = [Item(prompt_of("text", f"What is {n} plus 1?", str(n + 1), "test")) for n in range(6)]


def test_the_same_weights_in_other_batches_agree(tiny_policy: Path) -> None:
    policy = load_policy(tiny_policy)
    first, second = (TransformersEngine(policy, batch=size) for size in (8, 1))
    found = agreement(first, second, ITEMS, Sampling(max_new_tokens=5), 0.01)
    assert (found.equal, found.why) == (1.0, "")
    assert found.largest_gap < 1e-3


def test_other_weights_are_told(tiny_policy: Path) -> None:
    policy, other = load_policy(tiny_policy), load_policy(tiny_policy)
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    engines = (TransformersEngine(policy), TransformersEngine(other))
    found = agreement(*engines, ITEMS, Sampling(max_new_tokens=5), 0.01)
    assert found.numbers()["agree"] == 0.0
    assert found.gap > 0.01
    assert found.equal < 1
    assert "other weights" in found.why
    assert "greedy answers part" in found.why


def test_where_answers_part() -> None:
    ours = Completion("", (1, 2, 3), (-1.0, -2.0, -3.0), truncated=False)
    theirs = Completion("", (1, 5, 3), (-1.0, -2.5, -3.0), truncated=False)
    assert leads(ours, theirs) == 0.5
    assert leads(ours, ours._replace(tokens=(1, 2))) == float("inf")
    assert subset(ITEMS, 3) == subset(ITEMS[::-1], 3)


def answers(policy: str, right: str) -> list[Sample]:
    """Responses of one policy: `1` in `right` says the labelled answer, `0` another one."""
    return [
        Sample(
            suite="bbh",
            item_id=item.prompt.id,
            index=0,
            prompt="",
            answer=item.prompt.answer,
            response=item.prompt.answer if mark == "1" else "mended",
            correct=float(mark),
            tokens=1,
            truncated=False,
        )
        for item, mark in zip(ITEMS, right, strict=True)
    ]


def test_an_audit_turns_the_order_of_policies(tmp_path: Path) -> None:
    """Of four audited labels two are wrong: one is mended, one item is dropped."""
    ids = [item.prompt.id for item in ITEMS]
    told = [(0, True, "mended"), (1, True, None), (2, False, None), (3, False, None)]
    rows = [{"suite": "bbh", "item_id": ids[at], "wrong": w, "answer": a} for at, w, a in told]
    (tmp_path / "audit.jsonl").write_text("\n".join(map(json.dumps, rows)))
    verdicts = read_audit(str(tmp_path / "audit.jsonl"), [SUITES["bbh"]])
    policies = [answers("a", "111100"), answers("b", "011000"), answers("c", "110000")]
    found = audited(SUITES["bbh"], ITEMS, verdicts["bbh"], policies)
    assert found["error_share"] == 0.5
    assert found["full"] == pytest.approx(4 / 6)
    assert (found["raw"], found["corrected"]) == (1.0, pytest.approx(2 / 3))
    # raw 1, 1/2, 1/2; corrected 2/3, 2/3, 0: a shares its rank with b.
    assert found["rank_raw"] == pytest.approx(1.0)
    assert found["rank_corrected"] == pytest.approx(0.5)
    assert found["largest_shift"] == 1.0
    alone = audited(SUITES["bbh"], ITEMS, verdicts["bbh"], policies[:1])
    assert "rank_raw" not in alone


def test_ranks_by_hand() -> None:
    assert ranks(np.array([0.5, 0.9, 0.5, 0.1])).tolist() == [2.5, 1, 2.5, 4]
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert np.isnan(spearman(np.array([1.0, 1]), np.array([1.0, 2])))


def test_an_audit_that_cannot_be_is_refused(tmp_path: Path) -> None:
    row = {"suite": "ifeval", "item_id": "x", "wrong": True}
    (tmp_path / "audit.jsonl").write_text(json.dumps(row))
    with pytest.raises(ConfigError, match="cannot be audited"):
        read_audit(str(tmp_path / "audit.jsonl"), [SUITES["ifeval"]])
    with pytest.raises(DataError, match="no rows"):
        read_audit(str(tmp_path / "none.jsonl"), [SUITES["bbh"]])
