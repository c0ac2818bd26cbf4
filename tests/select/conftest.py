"""Measurements that lie in scratch, as an earlier run left them: no model is loaded for them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from posttrain.artifacts import write_json, write_rows
from posttrain.records import Prompt, Record, Sample
from posttrain.select.measures import Measures
from posttrain.select.stage import SelectConfig


@pytest.fixture
def unmeasured(tmp_path: Path) -> Measures:
    """Measures that were given neither policy nor judge nor history."""
    return Measures(SelectConfig(), tmp_path)


@pytest.fixture
def rolled(tmp_path: Path) -> Callable[..., Measures]:
    """Measures of a policy whose rollouts are known: by prompt, the responses and their verdicts.

    `logp` and `tokens` are those of every rollout.
    """

    def make(
        rows: Sequence[Prompt],
        verdicts: Mapping[str, Sequence[float]],
        responses: Mapping[str, Sequence[str]] | None = None,
        logps: Mapping[str, float] | None = None,
    ) -> Measures:
        samples = [
            Sample(
                suite="select",
                item_id=row.id,
                index=index,
                prompt=row.text,
                answer=row.answer,
                response=(responses or {}).get(row.id, [""] * 99)[index],
                prediction=(responses or {}).get(row.id, [None] * 99)[index],
                correct=verdict,
                tokens=4,
                truncated=False,
                logp=(logps or {}).get(row.id, 0.0),
            )
            for row in rows
            for index, verdict in enumerate(verdicts[row.id])
        ]
        write_rows(tmp_path, samples, "rollouts-000000-000000.jsonl")
        return Measures(SelectConfig(), tmp_path, policy=tmp_path)

    return make


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Measures]:
    """Measures of a policy and a judge whose numbers of some rows are known."""

    def make(name: str, rows: Sequence[Record], numbers: Sequence[float]) -> Measures:
        write_json(tmp_path / f"{name}-000000.json", list(numbers))
        return Measures(SelectConfig(chunk=len(rows)), tmp_path, policy=tmp_path, judge=tmp_path)

    return make
