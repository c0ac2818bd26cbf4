"""Scores, policies and registries for the gate's tests, all real and small."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import Manifest, write_rows
from posttrain.gate.stage import GateConfig, GateReport, run
from posttrain.journal import Journal
from posttrain.records import Sample
from posttrain.registry import CHAMPION, Registry

Seal = Callable[..., Manifest]
N = 150


@pytest.fixture(scope="session")
def empty_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated MLflow database; making one takes seconds, copying it none."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Registry(f"sqlite:///{path}", "posttrain-policy").holder(CHAMPION)
    return path


@pytest.fixture
def uri(empty_registry: Path, tmp_path: Path) -> str:
    shutil.copy(empty_registry, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def bench(tmp_path: Path, seal: Seal) -> "Bench":
    return Bench(tmp_path, seal)


class Bench:
    """Makes scores and policies, and puts them through the gate."""

    def __init__(self, root: Path, seal: Seal) -> None:
        self.root, self.seal, self.count = root, seal, 0

    def scores(
        self, name: str, shares: dict[str, float], *, items: int = N, first: int = 0
    ) -> Path:
        """Items are right in the same order everywhere, so that pairs are strongly correlated."""
        rows = [
            sample(suite, i, float(i < share * (first + items)))
            for suite, share in shares.items()
            for i in range(first, first + items)
        ]
        folder = self.root / "scores" / name
        write_rows(folder, rows)
        self.seal(folder, "scores")
        return folder

    def policy(self, name: str) -> Path:
        folder = self.root / "policies" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"name": name}))
        self.seal(folder, "policy")
        return folder

    def judge(
        self, challenger: Path, champion: Path, policy: Path, **options: object
    ) -> tuple[GateReport, Path]:
        self.count += 1
        out = self.root / "verdicts" / str(self.count)
        given = {"registry_uri": "", "resamples": 1000, "upload": False} | options
        journal = Journal(self.root / "journals" / str(self.count))
        report = run(
            GateConfig.model_validate(given),
            challenger=challenger,
            champion=champion,
            policy=policy,
            verdict=out,
            journal=journal,
        )
        return report, out


def sample(suite: str, item: int, correct: float, prompt: str = "") -> Sample:
    return Sample(
        suite=suite,
        item_id=f"item-{item:04}",
        index=0,
        prompt=prompt or f"{item}?",
        answer="1",
        response="1",
        correct=correct,
        tokens=1,
        truncated=False,
    )
