"""Several nights through the gate, and what the report shows of them."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.conftest import Bench, N

from posttrain.artifacts import Manifest
from posttrain.gate.nights import nights
from posttrain.journal import Journal
from posttrain.registry import rollback
from posttrain.report.facts import read_facts
from posttrain.report.sections.nights import changes
from posttrain.report.stage import ReportConfig, ReportReport, run, still_holds
from posttrain.statistics import wilson

Seal = Callable[..., Manifest]


def report_on(bench: Bench, name: str, **options: object) -> tuple[ReportReport, Path]:
    page = bench.root / "pages" / name
    config = ReportConfig.model_validate(options)
    policies = [*(bench.root / "policies").iterdir()][:1]
    return run(config, inputs=policies, page=page, journal=Journal(bench.root / name)), page


def test_the_page_shows_the_nights(
    bench: Bench, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first champion, a night to look at, a failure, a second champion, and back again."""
    start = bench.scores("start", {"arithmetic": 0.2, "countdown": 0.2})
    first = bench.policy("first")
    for name, share, policy in (
        ("one", 0.5, first),
        ("two", 0.52, bench.policy("alike")),
        ("three", 0.3, bench.policy("worse")),
        ("four", 0.8, bench.policy("second")),
    ):
        ours = bench.scores(name, {"arithmetic": share, "countdown": 0.2})
        bench.judge(ours, start, policy, registry_uri=uri)
        bench.judge(ours, start, policy, registry_uri=uri)
    rollback("posttrain-policy", uri)
    five = bench.scores("five", {"arithmetic": 0.51, "countdown": 0.2})
    bench.judge(five, start, bench.policy("third"), registry_uri=uri)

    found = nights(uri, "posttrain-policy")
    assert [(night.verdict, night.promoted) for night in found] == [
        ("pass", True),
        ("investigate", False),
        ("fail", False),
        ("pass", True),
        ("investigate", False),
    ], "the same scores against the same champion are one night"
    assert [night.scores["arithmetic"].value for night in found] == [0.5, 0.52, 0.3, 0.8, 77 / N]
    level = found[2].scores["countdown"]
    assert level.n == N
    assert (level.low, level.high) == pytest.approx(wilson(0.2, N), abs=0.002)
    assert [night.ended for night in found] == sorted(night.ended for night in found)
    assert changes(found) == [0, 3, 4]
    assert found[0].opponent == "none"
    assert found[1].opponent == found[0].policy == found[4].champion
    assert nights(uri, "another-model") == []

    report, page = report_on(bench, "with", registry_uri=uri)
    html = (page / "report.html").read_text()
    assert "gate" not in report.missing
    assert read_facts(page).nights == found
    assert html.count("arithmetic by night") == 1
    drawings = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert all(ET.fromstring(drawing) is not None for drawing in drawings)
    assert html.count(", fail: ") == 2, "once for each suite"
    assert html.count("pass, promoted: ") == 4
    config = ReportConfig(registry_uri=uri)
    assert still_holds({"page": page}, config) is None
    six = bench.scores("six", {"arithmetic": 0.49, "countdown": 0.2})
    bench.judge(six, start, first, registry_uri=uri)
    assert still_holds({"page": page}, config) == "there are other nights to plot now"

    away = ReportConfig(registry_uri="sqlite:////proc/nowhere/ml.db")
    assert still_holds({"page": page}, away) is None
    report, _ = report_on(bench, "away", registry_uri=away.registry_uri)
    assert "gate" in report.missing
    assert "registry not reachable" in capsys.readouterr().err


def test_a_night_without_scores_leaves_a_gap(bench: Bench, uri: str) -> None:
    """A suite that is missing or not finite one night is no zero."""
    start = bench.scores("start", {"arithmetic": 0.2, "countdown": 0.2})
    bench.judge(start, start, bench.policy("a"), registry_uri=uri)
    lacking = bench.scores("lacking", {"arithmetic": 0.3})
    bench.judge(lacking, start, bench.policy("b"), registry_uri=uri)
    broken = bench.scores("broken", {"arithmetic": 0.3, "countdown": 0.2})
    rows = broken / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"correct":1.0', '"correct":NaN', 1))
    bench.seal(broken, "scores")
    bench.judge(broken, start, bench.policy("c"), registry_uri=uri)
    found = nights(uri, "posttrain-policy")
    assert [sorted(night.scores) for night in found] == [
        ["arithmetic", "countdown"],
        ["arithmetic"],
        ["countdown"],
    ]
    report, _ = report_on(bench, "page", registry_uri=uri)
    assert "gate" not in report.missing
