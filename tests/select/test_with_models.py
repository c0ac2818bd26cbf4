"""The stage with a real policy and a real judge, both tiny and untrained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import (
    Manifest,
    content_files,
    digest_of,
    read_rows,
    write_rows,
)
from posttrain.journal import Journal
from posttrain.records import Preference, Prompt, Record, content_id
from posttrain.select.measures import Measured
from posttrain.select.stage import SelectConfig, SelectReport, run

Seal = Callable[..., Manifest]

TINY = {"rollouts": 2, "max_new_tokens": 3, "chunk": 2}


def prompts(count: int) -> list[Prompt]:
    return [
        Prompt(
            id=content_id(str(n)),
            text=f"What is {n} plus 1?",
            answer=str(n + 1),
            task="arithmetic" if n % 2 else "number",
            source="s",
        )
        for n in range(count)
    ]


def pairs(count: int) -> list[Preference]:
    return [
        Preference(
            id=str(n), prompt_id=str(n), prompt=f"{n}?", chosen="1", rejected="22", source="s"
        )
        for n in range(count)
    ]


def select(
    folder: Path, rows: list[Any], seal: Seal, *, out: str = "out", **given: Any
) -> SelectReport:
    models = {name: given.pop(name) for name in ("policy", "judge") if name in given}
    write_rows(folder / "in", rows)
    seal(folder / "in", type(rows[0]).__name__)
    return run(
        SelectConfig.model_validate(TINY | given),
        curated=folder / "in",
        selected=folder / out,
        journal=Journal(folder / f"journal-{out}"),
        **models,
    )


def measured(folder: Path) -> dict[str, dict[str, float]]:
    return {row.id: row.measures for row in read_rows(folder, Measured, "measures.jsonl")}


def kept(folder: Path, record: type[Record]) -> list[str]:
    return [str(getattr(row, "id", "")) for row in read_rows(folder, record)]


def test_one_set_of_rollouts_serves_several_selectors(
    tmp_path: Path, tiny_policy: Path, seal: Seal
) -> None:
    rows = prompts(5)
    chain = [{"name": "pass_rate_band", "low": 0, "high": 1}, {"name": "entropy_band", "low": 0}]
    report = select(tmp_path, rows, seal, policy=tiny_policy, selectors=chain)
    assert report.left == {"1 pass_rate_band": 5, "2 entropy_band": 5}
    found = measured(tmp_path / "out")
    assert list(found) == [row.id for row in rows]
    assert all(set(one) == {"pass_rate", "entropy"} for one in found.values())
    assert report.measures["entropy"] == pytest.approx(
        sum(one["entropy"] for one in found.values()) / 5, abs=1e-5
    )
    drawn = sorted(path.name for path in (tmp_path / "journal-out/scratch").iterdir())
    assert drawn == [f"rollouts-000000-{start:06}.jsonl" for start in (0, 2, 4)]


def test_a_kill_changes_nothing(tmp_path: Path, tiny_policy: Path, seal: Seal) -> None:
    """With one of three chunks gone, the same rows and measures come out."""
    given = {"policy": tiny_policy, "selectors": [{"name": "entropy_band", "low": 0.3}]}
    select(tmp_path, prompts(6), seal, **given)
    before = digest_of(content_files(tmp_path / "out"))
    (tmp_path / "journal-out/scratch/rollouts-000000-000002.jsonl").unlink()
    select(tmp_path, prompts(6), seal, **given)
    assert digest_of(content_files(tmp_path / "out")) == before


def test_the_judge_measures_pairs(tmp_path: Path, judge: Path, seal: Seal) -> None:
    wide = {"name": "margin_band", "low": -1e9, "high": 1e9}
    report = select(tmp_path, pairs(5), seal, judge=judge, selectors=[wide])
    margins = {i: one["margin"] for i, one in measured(tmp_path / "out").items()}
    assert report.left == {"1 margin_band": 5}
    middle = sorted(margins.values())[2]
    band = {"name": "margin_band", "low": -1e9, "high": middle + 1e-6}
    select(tmp_path, pairs(5), seal, judge=judge, selectors=[band], out="half")
    assert kept(tmp_path / "half", Preference) == [i for i, m in margins.items() if m <= middle]


def test_a_judge_that_does_not_sample_always_agrees_with_itself(
    tmp_path: Path, judge: Path, seal: Seal
) -> None:
    agreed = {"name": "seed_agreement", "verdicts": "asked"}
    report = select(tmp_path, pairs(3), seal, judge=judge, selectors=[agreed], at_least=0)
    assert report.selected == 0
    assert {one["agreement_4_asked"] for one in measured(tmp_path / "out").values()} <= {0.0, 1.0}
    drawn = select(tmp_path, pairs(40), seal, judge=judge, selectors=["seed_agreement"], out="two")
    assert 20 <= drawn.selected < 40


def test_the_policys_states_span_a_space(tmp_path: Path, tiny_policy: Path, seal: Seal) -> None:
    far = {"name": "k_center", "n": 3, "space": "policy"}
    report = select(tmp_path, prompts(6), seal, policy=tiny_policy, selectors=[far])
    assert report.selected == 3
    radii = [one["k_center_radius"] for one in measured(tmp_path / "out").values()]
    assert radii[0] == 0 < radii[2] <= radii[1] <= 2


def test_weak_labels_pass_where_the_policy_does_not_know(
    tmp_path: Path, tiny_policy: Path, seal: Seal
) -> None:
    """An untrained policy solves no gold question, so that every weak label stands."""
    rows = prompts(6)
    router = {"name": "weak_to_strong", "gold": ["arithmetic"], "neighbours": 1}
    report = select(tmp_path, rows, seal, policy=tiny_policy, selectors=[router])
    found = list(read_rows(tmp_path / "out", Prompt))
    assert [row.id for row in found] == [row.id for row in rows if row.task == "number"]
    assert {row.source for row in found} == {"s/weak"}
    assert report.measures["p_ik"] < 0.5


def test_log_probs_of_given_responses(tmp_path: Path, tiny_policy: Path, seal: Seal) -> None:
    band = {"name": "perplexity_band", "low": 0, "high": 1}
    report = select(tmp_path, pairs(3), seal, policy=tiny_policy, selectors=[band])
    assert report.selected == 3
    assert report.measures["ppl"] == pytest.approx(-report.measures["mean_logp"])
    assert report.measures["ppl"] > 1
