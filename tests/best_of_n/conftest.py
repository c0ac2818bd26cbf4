"""What the tests of best_of_n share: prompts, a tiny judge with a panel, and one call of `run`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import Manifest, write_json, write_rows
from posttrain.best_of_n.stage import BestOfNConfig, BestOfNReport, run
from posttrain.journal import Journal
from posttrain.records import Prompt, Sample, content_id
from posttrain.reward_model.panel import (
    PANEL,
    Invariance,
    ScoredPair,
    Thresholds,
    judge_the_judge,
)

Seal = Callable[..., Manifest]


def samples(correct: list[list[int]], judge: list[list[float]] | None = None) -> list[Sample]:
    """Right samples say `1`; wrong ones each say something of their own."""
    return [
        Sample(
            suite="best_of_n",
            item_id=str(i),
            index=n,
            prompt="?",
            answer="1",
            response="?",
            correct=float(right),
            tokens=10,
            truncated=False,
            prediction="1" if right else f"wrong {n}",
            judge=judge[i][n] if judge else None,
        )
        for i, row in enumerate(correct)
        for n, right in enumerate(row)
    ]


@pytest.fixture
def evaluation(tmp_path: Path, seal: Seal) -> Path:
    texts = [f"What is {n} plus 1?" for n in range(5)]
    prompts = [
        Prompt(
            id=content_id("arithmetic", text),
            text=text,
            answer=str(n + 1),
            task="arithmetic",
            source="test",
        )
        for n, text in enumerate(texts)
    ]
    write_rows(tmp_path / "evaluation", prompts)
    seal(tmp_path / "evaluation", "Prompt")
    return tmp_path / "evaluation"


@pytest.fixture(scope="module")
def judge(tiny_policy: Path, seal: Seal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random judge with the policy's body, and a panel that lets it."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("judge") / "judge"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    model.config.pad_token_id = AutoTokenizer.from_pretrained(tiny_policy).pad_token_id
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_policy).save_pretrained(folder)
    write_panel(folder, right=True)
    seal(folder, "judge")
    return folder


def write_panel(folder: Path, *, right: bool) -> None:
    """A panel over one pair that the judge got right or wrong."""
    pair = ScoredPair(
        source="test", chosen=2.0 * right, rejected=1.0, chosen_length=9, rejected_length=9
    )
    steady = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)
    panel = judge_the_judge([pair], steady, Thresholds(max_ece=1))
    write_json(folder / PANEL, panel.model_dump(mode="json"))


def go(
    root: Path, name: str, policy: Path | None, evaluation: Path | None, **more: object
) -> BestOfNReport:
    judge = more.pop("judge", None)
    journal = more.pop("journal", None) or Journal(root / f"journal-{name}")
    candidates = more.pop("candidates", None)
    config = BestOfNConfig.model_validate(
        {"n_max": 4, "max_new_tokens": 5, "chunk": 2, "resamples": 200} | more
    )
    return run(
        config,
        policy=policy,
        evaluation=evaluation,
        candidates=candidates,
        judge=judge,
        scores=root / name,
        journal=journal,
    )
