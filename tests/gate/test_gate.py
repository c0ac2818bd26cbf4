"""The gate end to end: verdicts on known scores, and aliases in a real MLflow registry."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.gate.conftest import Bench, N, sample

from posttrain.artifacts import content_files, write_rows
from posttrain.errors import ConfigError
from posttrain.gate.stage import GateConfig, still_holds
from posttrain.registry import CHALLENGER, CHAMPION, LAST_GOOD, Evidence, Registry, rollback


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
    report, _ = bench.judge(theirs, theirs, bench.policy("a"), rule="non_inferior", margin=0.04)
    assert report.verdict == "pass"
    assert report.suites["arithmetic"]["low"] == pytest.approx(-0.02497, abs=1e-5)
    report, _ = bench.judge(theirs, theirs, bench.policy("c"), rule="non_inferior")
    assert report.verdict == "investigate", "150 equal answers do not exclude a loss of 2 points"
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


def test_fewer_items_or_more_are_never_a_pass(bench: Bench) -> None:
    """Also where enough are shared: the others may be those that were lost."""
    theirs = bench.scores("theirs", {"arithmetic": 0.4})
    fewer = bench.scores("fewer", {"arithmetic": 0.9}, items=N - 1)
    more = bench.scores("more", {"arithmetic": 0.9}, items=N + 1)
    for folder, told in (
        (fewer, "1 items of the champion are missing, 0 are new"),
        (more, "0 items of the champion are missing, 1 are new"),
    ):
        report, _ = bench.judge(folder, theirs, bench.policy(told[:1]))
        assert report.verdict == "investigate"
        assert report.reasons == [f"arithmetic: {told}"]


@pytest.mark.parametrize("change", ['"answer":"2"', '"answer":"1","prompt":"another"'])
def test_another_version_of_a_suite_is_never_a_pass(bench: Bench, uri: str, change: str) -> None:
    """Against the stand-in, and against a champion whose scores the registry holds."""
    ours = bench.scores("ours", {"arithmetic": 0.6})
    old = bench.scores("old", {"arithmetic": 0.4})
    bench.judge(old, bench.scores("low", {"arithmetic": 0.1}), bench.policy("a"), registry_uri=uri)
    rows = ours / "rows.jsonl"
    if "prompt" in change:
        rows.write_text(rows.read_text().replace('"prompt":"7?"', '"prompt":"another"'))
    else:
        rows.write_text(rows.read_text().replace('"answer":"1"', change, 1))
    bench.seal(ours, "scores")
    for where in ("", uri):
        report, _ = bench.judge(ours, old, bench.policy(f"b{len(where)}"), registry_uri=where)
        assert report.verdict == "investigate"
        assert "another version of the suite" in report.reasons[0]


def test_a_champion_without_versions_is_never_beaten(bench: Bench, uri: str) -> None:
    """As registered before versions were kept; judging its policy again mends that."""
    low, old = (bench.scores(str(s), {"arithmetic": s}) for s in (0.1, 0.4))
    better, policy = bench.scores("better", {"arithmetic": 0.9}), bench.policy("a")
    bench.judge(old, low, policy, registry_uri=uri)
    registry = Registry(uri, "posttrain-policy")
    holder = registry.holder(CHAMPION)
    assert holder
    scores = registry.evidence(holder).scores
    registry.client.log_dict(holder.run, scores, "item_scores.json")
    assert registry.evidence(holder) == Evidence(scores=scores)
    challenger = bench.policy("b")
    report, _ = bench.judge(better, low, challenger, registry_uri=uri)
    assert (report.verdict, report.promoted) == ("investigate", False)
    fresh = bench.scores("fresh", {"arithmetic": 0.41})
    bench.judge(fresh, low, policy, registry_uri=uri)
    report, _ = bench.judge(better, low, challenger, registry_uri=uri)
    assert report.promoted


def test_items_that_share_a_prompt_count_once(bench: Bench) -> None:
    """Three prompts of 50 items each are too few, and no proof however many items differ."""
    folders = []
    for name, right in (("ours", 1.0), ("theirs", 0.0)):
        rows = [sample("arithmetic", i, right) for i in range(N)]
        folder = bench.root / "scores" / name
        write_rows(
            folder, [r.model_copy(update={"prompt": f"{i % 3}"}) for i, r in enumerate(rows)]
        )
        bench.seal(folder, "scores")
        folders.append(folder)
    report, _ = bench.judge(*folders, bench.policy("a"))
    assert "150 shared items with 3 prompts" in report.reasons[0]
    report, _ = bench.judge(*folders, bench.policy("b"), min_items=2)
    assert report.verdict == "investigate"
    assert report.suites["arithmetic"]["p"] == pytest.approx(0.25, abs=0.05)


def test_looks_make_a_promotion_rarer_and_no_failure(bench: Bench) -> None:
    """Seven items won and none lost: p = 2/128 is enough for one look and not for thirty."""
    theirs = bench.scores("theirs", {"arithmetic": 60 / N})
    ours = bench.scores("ours", {"arithmetic": 67 / N})
    for looks, verdict in ((1, "pass"), (30, "investigate")):
        report, _ = bench.judge(ours, theirs, bench.policy(verdict), looks=looks)
        assert report.verdict == verdict
        assert report.suites["arithmetic"]["p"] == pytest.approx(2 / 128, abs=0.004)
        report, _ = bench.judge(theirs, ours, bench.policy(f"-{verdict}"), looks=looks)
        assert report.verdict == "fail"


def test_holm_spares_a_policy_that_one_of_many_suites_suspects(bench: Bench) -> None:
    """Six items lost and none won, p = 2/64, convict alone, and not as one of twelve."""
    rng = np.random.default_rng(0)
    theirs = {f"suite{i:02}": rng.integers(0, 2, N) for i in range(11)} | {
        "arithmetic": np.zeros(N, dtype=int)
    }
    ours = {name: values.copy() for name, values in theirs.items()}
    wrong = np.flatnonzero(ours["suite00"] == 1)[:6]
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
    assert many.suites["suite00"]["p"] == pytest.approx(2 / 64, abs=0.005)
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
