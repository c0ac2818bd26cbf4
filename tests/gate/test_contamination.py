"""The gate and contamination: no pass by a suite that training data were not checked against."""

import json

import pytest
from tests.gate.conftest import Bench

from posttrain.artifacts import read_manifest, write_manifest
from posttrain.exposure import Exposure

SUITES = {"svamp": 0.6, "arithmetic": 0.5}
ORIGINS = {"svamp": "svamp@1", "arithmetic": "evaluation"}


def judged(bench: Bench, exposure: Exposure | None, **options: object) -> tuple[str, str, str]:
    """Verdict, first reason and standing of svamp, for a policy that is better at it."""
    ours = bench.scores("ours", SUITES)
    theirs = bench.scores("theirs", {"svamp": 0.4, "arithmetic": 0.5})
    policy = bench.policy("a")
    for folder, more in ((policy, {}), (ours, {"report": {"origins": ORIGINS}})):
        stated = {"exposure": exposure, **more}
        write_manifest(folder, read_manifest(folder).model_copy(update=stated))
    report, out = bench.judge(ours, theirs, policy, primary=["svamp"], **options)
    verdict = json.loads((out / "verdict.json").read_text())
    stands = verdict["contamination"]["svamp"]
    assert f"| {stands} |" in (out / "verdict.md").read_text()
    return report.verdict, report.reasons[0], stands


def test_a_checked_suite_may_decide(bench: Bench) -> None:
    verdict, reason, stands = judged(bench, Exposure(checked=("svamp@1",)))
    assert (verdict, stands) == ("pass", "checked")
    assert "svamp: significantly better" in reason


@pytest.mark.parametrize("checked", [(), ("svamp@0",), ("evaluation@1",)])
def test_an_unchecked_suite_is_to_be_looked_at(bench: Bench, checked: tuple[str, ...]) -> None:
    verdict, reason, stands = judged(bench, Exposure(checked=checked))
    assert (verdict, stands) == ("investigate", "unchecked")
    assert "svamp: unchecked: training data were not searched" in reason


def test_it_may_be_told_only(bench: Bench) -> None:
    verdict, _, stands = judged(bench, Exposure(checked=()), contamination="tell")
    assert (verdict, stands) == ("pass", "unchecked")


@pytest.mark.parametrize(
    "exposure",
    [None, Exposure(unknown=("base",)), Exposure(checked=("svamp@1",), unknown=("base",))],
)
def test_what_nobody_can_tell_is_said_and_blocks_nothing(
    bench: Bench, exposure: Exposure | None
) -> None:
    verdict, _, stands = judged(bench, exposure)
    assert (verdict, stands) == ("pass", "unknown")
