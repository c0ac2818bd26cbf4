"""Gates that fire twice or at once, in processes of their own, and what a kill leaves."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.gate.conftest import Bench

from posttrain import lease
from posttrain.errors import ConfigError
from posttrain.gate.comparison import read_scores
from posttrain.gate.nights import nights
from posttrain.gate.promotion import Entry, find_opponent, settle
from posttrain.registry import CHAMPION, LAST_GOOD, Registry, rollback

MODEL = "posttrain-policy"
AT_ONCE = """
import sys, time
from pathlib import Path
from mlflow import MlflowClient
from posttrain.cli import main
ready, go = Path(sys.argv[1]), Path(sys.argv[2])
ready.touch()
while not go.exists():
    time.sleep(0.005)
sys.exit(main(sys.argv[3:]))
"""


def champion_of(bench: Bench, uri: str) -> Path:
    """A registry with a champion; the scores of a start to compare with."""
    start = bench.scores("start", {"arithmetic": 0.2})
    bench.judge(
        bench.scores("old", {"arithmetic": 0.4}), start, bench.policy("old"), registry_uri=uri
    )
    return start


def fire(bench: Bench, uri: str, nights_: dict[str, tuple[Path, Path, str]]) -> dict[str, str]:
    """`posttrain gate` at once on each (scores, policy, store); what each said on stderr."""
    go, running = bench.root / "go", {}
    for name, (scores, policy, store) in nights_.items():
        ports = {
            "challenger": scores,
            "champion": bench.root / "scores/start",
            "policy": policy,
            "verdict": bench.root / name / "verdict",
            "store": bench.root / store,
            "run-folder": bench.root / name / "run",
        }
        argv = [word for port, path in ports.items() for word in (f"--{port}", str(path))]
        argv += ["--registry-uri", uri, "--resamples", "1000", "--upload", "false"]
        ready = bench.root / f"{name}.ready"
        script = [sys.executable, "-c", AT_ONCE, str(ready), str(go)]
        running[name] = (
            ready,
            subprocess.Popen(
                [*script, "gate", "--tracking", "off", *argv],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ),
        )
    until = time.monotonic() + 120
    while not all(ready.exists() for ready, _ in running.values()) and time.monotonic() < until:
        time.sleep(0.02)
    go.touch()
    said = {name: process.communicate(timeout=120)[0] for name, (_, process) in running.items()}
    assert [process.returncode for _, process in running.values()] == [0] * len(running), said
    return said


def verdict(bench: Bench, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((bench.root / name / "verdict/verdict.json").read_text())
    return found


def test_gates_at_once_promote_one_and_the_same_night_twice_is_one(bench: Bench, uri: str) -> None:
    """Two policies, both better than the champion and like each other; one of them fired twice."""
    champion_of(bench, uri)
    a = (bench.scores("a", {"arithmetic": 0.7}), bench.policy("a"))
    b = (bench.scores("b", {"arithmetic": 0.71}), bench.policy("b"))
    said = fire(bench, uri, {"a": (*a, "s"), "again": (*a, "s"), "b": (*b, "t")})
    assert sorted("cached" in said[name] for name in ("a", "again")) == [False, True]
    assert verdict(bench, "a") == verdict(bench, "again")
    found = {name: verdict(bench, name) for name in ("a", "b")}
    won, lost = sorted(found, key=lambda name: not found[name]["promoted"])
    assert (found[won]["verdict"], found[won]["promoted"]) == ("pass", True)
    assert (found[lost]["verdict"], found[lost]["promoted"]) == ("investigate", False)
    assert found[lost]["baseline"]["policy"] == found[won]["policy"]  # type: ignore[index]
    registry = Registry(uri, MODEL)
    holder = registry.holder(CHAMPION)
    assert holder
    assert (holder.policy, holder.replaced) == (found[won]["policy"], "1")
    assert registry.holder(LAST_GOOD) == registry.version("1")
    assert [night.promoted for night in nights(uri, MODEL)] == [True, True, False]
    assert len(registry.client.search_model_versions(f"name='{MODEL}'")) == 3
    assert [model.name for model in registry.client.search_registered_models()] == [MODEL]


def test_a_verdict_against_a_former_champion_moves_nothing(bench: Bench, uri: str) -> None:
    """Between the comparison and the promotion another gate promotes."""
    start = champion_of(bench, uri)
    ours, policy = bench.scores("ours", {"arithmetic": 0.7}), bench.policy("ours")
    met, registry = find_opponent(Registry(uri, MODEL), start, "ours")
    other = bench.scores("other", {"arithmetic": 0.8})
    bench.judge(other, start, bench.policy("other"), registry_uri=uri)
    entry = Entry(policy, "digest", read_scores(ours).evidence, upload=False)
    settled = settle(registry, "pass", entry, met, configured=True)
    assert settled.registry == "moved"
    assert "another policy became champion" in settled.promotion
    holder = Registry(uri, MODEL).holder(CHAMPION)
    assert holder
    assert settled.champion == holder.policy
    assert holder.replaced == "1"


def test_the_lock_of_a_killed_process_is_taken_over(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    registry = Registry(uri, MODEL)
    assert lease.made(registry.client, f"{MODEL}.lock", "a process that was killed")
    began = time.monotonic()
    with registry.alone():
        assert time.monotonic() - began > 1.0
    assert registry.client.search_registered_models() == []


def test_a_kill_in_the_middle_of_a_promotion_leaves_the_way_back(bench: Bench, uri: str) -> None:
    """The alias `last_good` has moved, the champion's has not: the next gate does the rest."""
    start = champion_of(bench, uri)
    registry = Registry(uri, MODEL)
    ours, policy = bench.scores("ours", {"arithmetic": 0.8}), bench.policy("ours")
    evidence = read_scores(ours).evidence
    registry.register(policy, "digest", evidence, upload=False)
    registry.client.set_model_version_tag(MODEL, "2", "replaced", "1")
    registry.client.set_registered_model_alias(MODEL, LAST_GOOD, "1")
    with pytest.raises(ConfigError, match="nothing to roll back to"):
        rollback(MODEL, uri)
    report, _ = bench.judge(ours, start, policy, registry_uri=uri)
    assert report.promoted
    assert "version 1 again" in rollback(MODEL, uri)
