"""The gate end to end: verdicts on known scores, and aliases in a real MLflow registry."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.artifacts import Manifest, content_files, write_rows
from posttrain.errors import ConfigError
from posttrain.gate.stage import GateConfig, GateReport, run, still_holds
from posttrain.journal import Journal
from posttrain.records import Sample
from posttrain.registry import CHALLENGER, CHAMPION, LAST_GOOD, Registry, rollback

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


def sample(suite: str, item: int, correct: float) -> Sample:
    return Sample(
        suite=suite,
        item_id=f"item-{item:04}",
        index=0,
        prompt="?",
        answer="1",
        response="1",
        correct=correct,
        tokens=1,
        truncated=False,
    )


def test_a_better_policy_passes(bench: Bench) -> None:
    ours = bench.scores("ours", {"arithmetic": 0.6, "countdown": 0.2})
    theirs = bench.scores("theirs", {"arithmetic": 0.4, "countdown": 0.2})
    report, out = bench.judge(ours, theirs, bench.policy("a"))
    verdict = json.loads((out / "verdict.json").read_text())
    assert (report.verdict, verdict["verdict"]) == ("pass", "pass")
    assert report.suites["arithmetic"]["difference"] == pytest.approx(0.2)
    assert report.suites["arithmetic"]["low"] > 0.1
    assert report.suites["countdown"]["p_holm"] == 1.0
    assert not report.promoted
    assert verdict["promotion"] == "no registry is configured"
    assert "# PASS" in (out / "verdict.md").read_text()


def test_a_suite_that_got_worse_fails(bench: Bench) -> None:
    ours = bench.scores("ours", {"arithmetic": 0.6, "countdown": 0.1})
    theirs = bench.scores("theirs", {"arithmetic": 0.4, "countdown": 0.3})
    report, _ = bench.judge(ours, theirs, bench.policy("a"))
    assert report.verdict == "fail"
    assert "countdown: significantly worse" in report.reasons[0]


def test_a_floor_fails_what_is_better(bench: Bench) -> None:
    ours = bench.scores("ours", {"arithmetic": 0.6})
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    report, _ = bench.judge(ours, theirs, bench.policy("a"), floors={"arithmetic": 0.7})
    assert report.verdict == "fail"
    assert "below its floor" in report.reasons[0]


def test_no_difference_is_to_be_looked_at_and_says_what_it_could_see(bench: Bench) -> None:
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    report, _ = bench.judge(theirs, theirs, bench.policy("a"))
    assert report.verdict == "investigate"
    assert "would show in 4 of 5 tries" in report.reasons[0]


def test_non_inferior_by_margin(bench: Bench) -> None:
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    worse = bench.scores("worse", {"arithmetic": 0.393})
    report, _ = bench.judge(theirs, theirs, bench.policy("a"), rule="non_inferior")
    assert report.verdict == "pass"
    report, _ = bench.judge(worse, theirs, bench.policy("b"), rule="non_inferior", margin=0.005)
    assert report.verdict == "investigate"
    assert "may be worse by more than 0.005" in report.reasons[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ({"arithmetic": 0.6}, {"arithmetic": 0.4, "svamp": 0.4}, "svamp: the challenger has no"),
        ({"arithmetic": 0.6, "svamp": 0.4}, {"arithmetic": 0.4}, "svamp: the champion has no"),
        ({"svamp": 0.6}, {"svamp": 0.4}, "arithmetic: the challenger has no scores"),
        ({"arithmetic": float("nan")}, {"arithmetic": 0.4}, "not finite"),
    ],
)
def test_what_is_missing_is_never_a_pass(
    bench: Bench, ours: dict[str, float], theirs: dict[str, float], reason: str
) -> None:
    folder = bench.scores("ours", {k: v if v == v else 0.6 for k, v in ours.items()})
    if ours.get("arithmetic") != ours.get("arithmetic"):
        path = folder / "rows.jsonl"
        path.write_text(path.read_text().replace('"correct":1.0', '"correct":NaN', 1))
        bench.seal(folder, "scores")
    report, _ = bench.judge(folder, bench.scores("theirs", theirs), bench.policy("a"))
    assert report.verdict == "investigate"
    assert any(reason in found for found in report.reasons)


def test_other_items_and_few_items_are_never_a_pass(bench: Bench) -> None:
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    other = bench.scores("other", {"arithmetic": 0.9}, first=N)
    few = bench.scores("few", {"arithmetic": 0.9}, items=20)
    for folder, shared in ((other, "0 shared items"), (few, "20 shared items")):
        report, _ = bench.judge(folder, theirs, bench.policy(shared))
        assert report.verdict == "investigate"
        assert shared in report.reasons[0]


def test_holm_spares_a_policy_that_one_of_many_suites_suspects(bench: Bench) -> None:
    """A p-value of about 0.03 convicts alone, and not as one of twelve."""
    rng = np.random.default_rng(0)
    theirs = {f"suite{i:02}": rng.integers(0, 2, N) for i in range(11)} | {
        "arithmetic": np.zeros(N, dtype=int)
    }
    ours = {name: values.copy() for name, values in theirs.items()}
    wrong = np.flatnonzero(ours["suite00"] == 1)[:5]
    ours["suite00"][wrong] = 0
    for name, values in (("ours", ours), ("theirs", theirs)):
        folder = bench.root / "scores" / name
        write_rows(
            folder,
            (sample(s, i, float(v)) for s, column in values.items() for i, v in enumerate(column)),
        )
        bench.seal(folder, "scores")
    paths = bench.root / "scores" / "ours", bench.root / "scores" / "theirs"
    many, _ = bench.judge(*paths, bench.policy("a"))
    assert 0.01 < many.suites["suite00"]["p"] < 0.05
    assert many.verdict == "investigate"
    alone, _ = bench.judge(*paths, bench.policy("b"), suites=["suite00"], primary=["suite00"])
    assert alone.verdict == "fail"


def test_champion_last_good_and_rollback(bench: Bench, uri: str) -> None:
    """Three generations through one registry, then back."""
    weak, middle, strong = (
        bench.scores(name, {"arithmetic": share})
        for name, share in (("weak", 0.2), ("middle", 0.5), ("strong", 0.8))
    )
    first, second = bench.policy("first"), bench.policy("second")
    report, out_first = bench.judge(middle, weak, first, registry_uri=uri)
    assert (report.verdict, report.promoted, report.baseline) == ("pass", True, "stand_in")

    report, _ = bench.judge(weak, weak, bench.policy("loser"), registry_uri=uri)
    assert (report.verdict, report.promoted, report.baseline) == ("fail", False, "champion")

    report, out_second = bench.judge(strong, weak, second, registry_uri=uri)
    assert (report.verdict, report.promoted) == ("pass", True)
    assert report.suites["arithmetic"]["difference"] == pytest.approx(0.3, abs=0.01)
    registry = Registry(uri, "posttrain-policy")
    held = {alias: registry.holder(alias) for alias in (CHAMPION, LAST_GOOD, CHALLENGER)}
    assert [v.number if v else None for v in held.values()] == ["3", "1", "2"]

    config = GateConfig(registry_uri=uri)
    assert still_holds({"verdict": out_second}, config) is None
    assert "the champion is" in (still_holds({"verdict": out_first}, config) or "")

    said = rollback("posttrain-policy", uri)
    assert "version 1 again" in said
    assert still_holds({"verdict": out_first}, config) is None
    report, _ = bench.judge(strong, weak, second, registry_uri=uri)
    assert (report.verdict, report.promoted) == ("investigate", False)
    assert "rolled back" in report.reasons[0]
    with pytest.raises(ConfigError, match="nothing to roll back to"):
        rollback("posttrain-policy", uri)


def test_judging_the_champion_again_gives_the_same_bytes(bench: Bench, uri: str) -> None:
    """Also after it replaced another, and in a registry with another history."""
    weak = bench.scores("weak", {"arithmetic": 0.2})
    strong = bench.scores("strong", {"arithmetic": 0.5})
    stronger = bench.scores("stronger", {"arithmetic": 0.8})
    first, second = bench.policy("first"), bench.policy("second")
    outs = [bench.judge(strong, weak, first, registry_uri=uri)[1] for _ in range(2)]
    outs += [bench.judge(stronger, weak, second, registry_uri=uri)[1] for _ in range(2)]
    digests = [content_files(out) for out in outs]
    assert digests[0] == digests[1] != digests[2] == digests[3]


@pytest.mark.parametrize("upload", [True, False])
def test_the_champion_can_be_fetched_from_the_registry(
    bench: Bench, uri: str, upload: bool
) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    ours = bench.scores("ours", {"arithmetic": 0.9})
    theirs = bench.scores("theirs", {"arithmetic": 0.2})
    policy = bench.policy("a")
    bench.judge(ours, theirs, policy, registry_uri=uri, upload=upload)
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    source = client.get_model_version_by_alias("posttrain-policy", "champion").source
    found = download_artifacts(source, tracking_uri=uri)
    assert (Path(found) / "config.json").read_bytes() == (policy / "config.json").read_bytes()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "sqlite:////proc/nowhere/ml.db"])
def test_a_registry_that_is_away_stops_nothing(
    bench: Bench, uri: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = bench.scores("ours", {"arithmetic": 0.6})
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    report, out = bench.judge(ours, theirs, bench.policy("a"), registry_uri=address)
    assert (report.verdict, report.promoted) == ("pass", False)
    assert "cannot be used now" in report.promotion
    assert "registry not reachable" in capsys.readouterr().err
    assert address not in (out / "verdict.json").read_text()
    assert still_holds({"verdict": out}, GateConfig(registry_uri=address)) is None
    again = still_holds({"verdict": out}, GateConfig(registry_uri=uri))
    assert again == "the registry can be reached again"
