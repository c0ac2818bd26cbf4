"""The page tells how scores were measured: engine, chat template, seed, and a second engine."""

from typing import Any

from posttrain.records import Score
from posttrain.report.facts import Artifact, Facts, TaskScore
from posttrain.report.sections.scores import draw

AGREED = {"items": 32.0, "equal": 0.75, "gap": 0.002, "tolerance": 0.05, "agree": 1.0}


def facts(**report: Any) -> Facts:
    told = {"engine": "transformers", "template": "0f1e2d3c", "temperature": 1.0, "seed": 7}
    made = Artifact(
        task="benchmark_rl",
        stage="benchmark",
        port="scores",
        record="scores",
        rows=None,
        digest="",
        inputs={},
        seed=7,
        git="",
        departures={},
        report=told | report,
    )
    score = Score(suite="bbh", metric="exact_match", value=0.5, n=4, stderr=0.1, low=0.2, high=0.8)
    empty: dict[str, Any] = {
        name: [] for name in ("curves", "rungs", "deltas", "cells", "examples")
    }
    nothing: dict[str, Any] = {name: {} for name in ("panel", "verdict", "tokens")}
    return Facts.model_validate(
        {"title": "", "suite": "bbh", "artifacts": [made]}
        | {"scores": [TaskScore(policy="rl", score=score)], **empty, **nothing}
    )


def test_engine_template_and_seed_are_shown() -> None:
    page = str(draw(facts(), None).body)
    for shown in ("transformers", "0f1e2d3c", "How they were measured"):
        assert shown in page
    assert "A second engine" not in page


def test_a_second_engine_agrees_or_the_page_says_why() -> None:
    assert "✓" in str(draw(facts(agreement={"bbh": AGREED}), None).body)
    other = AGREED | {"gap": 0.3, "agree": 0.0}
    why = {"bbh": "log-probs differ by 0.3 nats a token"}
    page = str(draw(facts(agreement={"bbh": other}, disagreements=why), None).body)
    assert "✕ log-probs differ by 0.3 nats a token" in page
    assert "75.0%" in page


def test_a_label_audit_is_shown() -> None:
    page = str(draw(facts(audit={"bbh": {"error_share": 0.5, "rank_corrected": 0.9}}), None).body)
    assert "error share 0.5, rank corrected 0.9" in page
