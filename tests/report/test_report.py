"""The report stage on a small run: what is on the page, and that nothing can break it."""

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.conftest import HOSTILE, Run, records_of, samples_of, write_run

from posttrain.artifacts import Manifest, content_files, write_rows
from posttrain.execution import Request, execute
from posttrain.journal import Journal
from posttrain.report.facts import Answer, Example, read_facts
from posttrain.report.finish import finish
from posttrain.report.markup import VOID
from posttrain.report.page import SECTIONS, render
from posttrain.report.sections import samples
from posttrain.report.stage import ReportConfig, ReportReport, run
from posttrain.stages import load_stage

ALL = [*SECTIONS]


def report_on(folders: list[Path], home: Path, **options: object) -> tuple[ReportReport, Path]:
    page = home / "page"
    config = ReportConfig.model_validate(options)
    return run(config, inputs=folders, page=page, journal=Journal(home / "journal")), page


class Reader(HTMLParser):
    """Collects tags, ids and attributes; `open` is empty at the end of balanced markup."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def html_of(page: Path) -> str:
    return (page / "report.html").read_text(encoding="utf-8")


def test_every_section_has_content(whole_run: list[Path], tmp_path: Path) -> None:
    report, page = report_on(whole_run, tmp_path)
    assert report.missing == []
    ids = {attributes.get("id") for _, attributes in Reader(html_of(page)).tags}
    assert ids >= set(ALL)
    assert report.bytes == len(html_of(page).encode()) < 1_000_000


def test_the_page_is_well_formed_and_its_ids_are_unique(
    whole_run: list[Path], tmp_path: Path
) -> None:
    html = html_of(report_on(whole_run, tmp_path)[1])
    reader = Reader(html)
    assert reader.open == []
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(ids) == len(set(ids))
    drawings = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(drawings) >= 10
    for drawing in drawings:
        root = ET.fromstring(drawing)
        named = {child.get("id") for child in root if child.tag in ("title", "desc")}
        assert set(str(root.get("aria-labelledby")).split()) == named
        assert all(child.text for child in root if child.tag in ("title", "desc"))
        assert "nan" not in drawing.lower().replace("pt-nan", "")


def test_the_page_loads_nothing(whole_run: list[Path], tmp_path: Path) -> None:
    html = html_of(report_on(whole_run, tmp_path)[1])
    assert not re.search(r"https?://|@import|url\(", html)
    for tag, attributes in Reader(html).tags:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
        assert not any(name.startswith("on") for name in attributes)


def test_hostile_texts_are_shown_not_run(whole_run: list[Path], tmp_path: Path) -> None:
    html = html_of(report_on(whole_run, tmp_path, title="</title><script>1</script>")[1])
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "&lt;script&gt;alert(&quot;owned&quot;)&lt;/script&gt;" in html
    assert "\u202e" not in html
    assert "\x00" not in html


def test_a_hostile_answer_is_shown_not_run(whole_run: list[Path], tmp_path: Path) -> None:
    facts = read_facts(report_on(whole_run, tmp_path)[1])
    answer = Answer(policy="<b>", response=HOSTILE + "\ud800", correct=0, truncated=True)
    example = Example(
        why="<i>", suite="<s>", item_id="&", prompt=HOSTILE, answer="'\"", difficulty=None,
        answers=[answer],
    )  # fmt: skip
    body = samples.draw(facts.model_copy(update={"examples": [example]}), None).body
    assert {tag for tag, _ in Reader(body).tags} <= {
        "article", "h3", "h4", "small", "pre", "p", "code", "div", "b"
    }  # fmt: skip
    assert 'alert("owned")' in Reader(body).text
    body.encode("utf-8")


def test_the_same_run_gives_the_same_bytes(seal: Callable[..., Manifest], tmp_path: Path) -> None:
    """Other clock readings and another order of the inputs change nothing."""
    one = write_run(tmp_path / "one", seal, started=1.7e9, seconds=4.0)
    two = write_run(tmp_path / "two", seal, started=1.8e9, seconds=9.0)
    _, first = report_on(one, tmp_path / "a")
    _, second = report_on(two[::-1], tmp_path / "b")
    assert content_files(first) == content_files(second)


def test_the_facts_survive_the_file(whole_run: list[Path], tmp_path: Path) -> None:
    page = report_on(whole_run, tmp_path)[1]
    assert render(read_facts(page)) == html_of(page)


def test_times_come_with_the_records(whole_run: list[Path], tmp_path: Path) -> None:
    page = report_on(whole_run, tmp_path)[1]
    assert "min 0" not in html_of(page)
    spent = {"accelerator_seconds": 50.0, "core_seconds": 10.0, "saved_seconds": 0.0, "money": 0.5}
    records = [record | {"cost": spent} for record in records_of(whole_run)]
    summary = finish(page, records, tmp_path / "out", wall_seconds=300.0)
    html = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert Reader(html).open == []
    assert "5 min 00 s" in html
    assert "Minutes since the start" in html
    assert f"{0.5 * len(records):.4f}" in html
    assert "A point of pass@1" in html
    written = json.loads((tmp_path / "out/summary.json").read_text())
    assert json.dumps(written, sort_keys=True) == json.dumps(summary, sort_keys=True)
    assert summary["wall_seconds"] == 300.0
    assert summary["stages"]["sft"] | {"reason": ""} == {
        "stage": "sft", "seconds": 24.0, "overhead_seconds": 2.5, "cached": False, "reason": ""
    }  # fmt: skip
    assert summary["stages"]["base"]["seconds"] == 0.0
    work = sum(stage["seconds"] for stage in summary["stages"].values())
    assert summary["overhead_seconds"] == pytest.approx(300 - work)


def test_a_cluster_may_take_times_from_manifests(whole_run: list[Path], tmp_path: Path) -> None:
    page = report_on(whole_run, tmp_path, times=True)[1]
    assert "4.0 s" in html_of(page)
    summary = json.loads((page / "summary.json").read_text())
    assert summary["stages"]["rl"]["seconds"] == 4.0
    assert summary["wall_seconds"] is None


def test_the_summary_holds_what_programs_want(whole_run: list[Path], tmp_path: Path) -> None:
    summary = json.loads((report_on(whole_run, tmp_path)[1] / "summary.json").read_text())
    metrics = summary["metrics"]
    assert set(metrics["pass_at_1"]) == {"base", "sft", "rejected_sft", "rl"}
    assert all(
        set(found) == {"value", "low", "high", "n"} for found in metrics["pass_at_1"].values()
    )
    gain = metrics["gains"]["rl_over_rejected_sft"]
    rl, start = metrics["pass_at_1"]["rl"], metrics["pass_at_1"]["rejected_sft"]
    assert gain["value"] == pytest.approx(rl["value"] - start["value"])
    assert gain["low"] <= gain["value"] <= gain["high"]
    assert metrics["reward_model_accuracy"] == 0.781
    assert [point["n"] for point in metrics["best_of_n"]] == [1, 2, 4, 8, 16]
    assert metrics["best_of_n"][3]["judge"]["value"] == 0.755
    assert set(metrics["suites"]["sft"]) == {"arithmetic", "countdown", "knights_knaves"}
    assert metrics["gate"]["verdict"] == "pass"
    assert math.isnan(metrics["gate"]["suites"][1]["champion"])
    assert len(summary["lineage"]) == len(whole_run)


def test_values_that_are_no_numbers_are_shown_as_such(
    whole_run: list[Path], tmp_path: Path
) -> None:
    text = Reader(html_of(report_on(whole_run, tmp_path)[1])).text
    assert "no finite value" in text
    assert "NaN to NaN" in text


def test_clock_readings_stay_out(whole_run: list[Path], tmp_path: Path) -> None:
    html = html_of(report_on(whole_run, tmp_path)[1])
    assert "tokens_per_second" not in html
    assert "train_runtime" not in (tmp_path / "page/facts.json").read_text()


def test_no_input_at_all_still_makes_a_page(tmp_path: Path) -> None:
    report, page = report_on([], tmp_path)
    assert set(report.missing) == set(ALL)
    assert Reader(html_of(page)).open == []
    assert html_of(page).count('class="absent"') >= len(ALL)


@pytest.mark.parametrize("left_out", ["benchmark", "best_of_n", "gate", "reward_model", "curate"])
def test_half_a_run_says_what_is_missing(
    whole_run: list[Path], tmp_path: Path, left_out: str
) -> None:
    folders = [f for f in whole_run if not f.parent.name.startswith(left_out)]
    report, page = report_on(folders, tmp_path)
    assert len(report.missing) in (1, 2)
    assert Reader(html_of(page)).open == []
    summary = finish(page, records_of(folders), tmp_path / "out")
    assert set(summary["stages"]) == {f.parent.name for f in folders} | {"report"}


def test_learning_curves_are_those_of_trainings(whole_run: list[Path], tmp_path: Path) -> None:
    facts = read_facts(report_on(whole_run, tmp_path)[1])
    assert {curve.task for curve in facts.curves} == {"sft", "reward_model", "rejected_sft", "rl"}
    rewards = next(c for c in facts.curves if c.name == "reward/mean")
    assert rewards.values[30] is None
    assert rewards.steps == list(range(60))


def test_best_of_n_tells_gain_and_cost(whole_run: list[Path], tmp_path: Path) -> None:
    text = Reader(html_of(report_on(whole_run, tmp_path)[1])).text
    assert "judge@16 is +11.0 points over pass@1 (95% interval +7.0 to +15.0)" in text
    assert "A solved item takes 812 tokens" in text


def test_a_graph_with_one_benchmark_has_one_rung(
    seal: Callable[..., Manifest], tmp_path: Path
) -> None:
    """The nightly graph: base, benchmark, gate."""
    nightly = Run(tmp_path / "run", seal)
    nightly.add("base", "policy", "policy")
    write_rows(tmp_path / "run/benchmark/scores", samples_of("rl", "arithmetic", 0.5))
    nightly.add("benchmark", "scores", "scores", {}, reads=["base.policy"])
    report, page = report_on(nightly.folders, tmp_path)
    assert list(report.pass_at_1) == ["policy"]
    assert {"gate", "best-of-n", "curves"} <= set(report.missing)
    assert "Right with policy" in html_of(page)


def test_only_departures_from_the_defaults_are_listed(
    whole_run: list[Path], tmp_path: Path
) -> None:
    facts = read_facts(report_on(whole_run, tmp_path)[1])
    departures = {a.task: a.departures for a in facts.artifacts}
    assert departures["sft"]["learning_rate"] == 3e-3
    assert departures["base"] == {}


def test_the_stage_runs_behind_the_one_door(whole_run: list[Path], tmp_path: Path) -> None:
    request = Request(
        stage=load_stage("report"),
        task="report",
        config=ReportConfig(),
        inputs={"inputs": whole_run},
        outputs={"page": tmp_path / "page"},
        store=tmp_path / "store",
    )
    first, again = execute(request), execute(request)
    assert not first["cached"]
    assert again["cached"]
    assert first["outputs"] == again["outputs"]
