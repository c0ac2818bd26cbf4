"""Every suite that reads files, through the stage: rows, metrics, categories, refusals."""

import json
from pathlib import Path

import pytest
from tests.benchmark.conftest import DATA, FILES, JUDGED, Seal, config, go, lay

from posttrain.artifacts import read_rows, write_rows
from posttrain.benchmark.scorers import LIKELIHOOD
from posttrain.benchmark.stage import preflight
from posttrain.benchmark.suites import CHOICES, SUITES, Place
from posttrain.benchmark.suites.sources import Upstream
from posttrain.cli import main
from posttrain.errors import ConfigError
from posttrain.records import Sample, Score
from posttrain.report.compare import examples_of

METRICS = {
    "truthfulqa": {"mc1", "mc2"},
    "ifeval": {"prompt_strict", "prompt_loose_told", "instruction_strict", "untold_instructions"},
    "xstest": {"appropriate", "over_refusal", "unsafe_compliance"},
    "usb": {"asr", "arr", "harmonic"},
    "prmbench": {"prm_score", "process_f1", "first_error_accuracy"},
    "processbench": {"prm_score", "process_f1", "accuracy_clean"},
    "abstention": {"i_score", "o_score", "o_score_plain", "macro_f1", "bounce_recall"},
    "eifbench": {"task_level", "cla", "ila"},
    "personagym": {"in_character", "persona_score"},
    "mt_bench": {"win_rate", "chance", "swapped"},
    "arena_hard": {"win_rate", "chance", "swapped"},
}


@pytest.mark.parametrize("name", FILES)
def test_a_suite_runs_by_name(name: str, tiny_policy: Path, judge: Path, tmp_path: Path) -> None:
    data = lay(tmp_path / "data", name)
    given = config({"name": name}, data_folder=str(data), max_new_tokens=4)
    if SUITES[name].max_new_tokens:
        given = config({"name": name, "max_new_tokens": 4}, data_folder=str(data))
    ports = {"judge": judge} if name in JUDGED else {}
    report = go(tmp_path, tiny_policy, given, **ports)
    items = SUITES[name].items(Place(None, str(data)))
    rows = list(read_rows(tmp_path / "scores", Sample))
    numbers = report.suites[name]
    assert {row.item_id for row in rows} == {item.prompt.id for item in items}
    assert numbers["n"] == len(items)
    assert numbers.keys() >= METRICS.get(name, set()) | {"low", "high", "empty", "unscored"}
    assert all(0 <= row.correct <= 1 for row in rows)
    assert {row.sensitive for row in rows} == {SUITES[name].sensitive or None}
    assert set(report.by_category[name]) == {item.category for item in items if item.category}
    table = list(read_rows(tmp_path / "scores", Score, "scores.jsonl"))
    assert table[0].metric == SUITES[name].metric
    assert table[0].value == pytest.approx(sum(row.correct for row in rows) / len(rows))
    assert all(score.low <= score.value <= score.high for score in table)


def test_what_no_rule_can_tell_is_counted_in_the_report(tiny_policy: Path, tmp_path: Path) -> None:
    data = lay(tmp_path / "data", "ifeval")
    given = config({"name": "ifeval", "max_new_tokens": 3}, data_folder=str(data))
    report = go(tmp_path, tiny_policy, given)
    assert report.suites["ifeval"]["untold_instructions"] == 0.5
    assert report.suites["ifeval"]["prompt_strict"] <= 0.5


@pytest.mark.parametrize("name", JUDGED)
def test_a_suite_that_needs_a_judge_says_so_before_any_work(name: str, tmp_path: Path) -> None:
    data = lay(tmp_path / "data", name)
    with pytest.raises(ConfigError, match="needs a judge") as error:
        go(tmp_path, tmp_path / "no policy", config(name, data_folder=str(data)))
    assert "--judge" in str(error.value)


def test_a_judge_takes_the_place_of_the_policy_in_step_scores(
    tiny_policy: Path, judge: Path, tmp_path: Path
) -> None:
    given = config("prmbench", data_folder=str(lay(tmp_path / "data", "prmbench")))
    for name, ports in (("policy", {}), ("judge", {"judge": judge})):
        go(tmp_path / name, tiny_policy, given, **ports)
    told = [
        [row.response for row in read_rows(tmp_path / name / "scores", Sample)]
        for name in ("policy", "judge")
    ]
    assert told[0] != told[1]


def test_options_under_letters_in_rotations(tiny_policy: Path, tmp_path: Path) -> None:
    given = {"name": "aqua", "permutations": 3}
    data = lay(tmp_path / "data", "aqua")
    report = go(tmp_path, tiny_policy, config(given, data_folder=str(data)))
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert [(row.index, row.prompt.split("\n")[1]) for row in rows[:3]] == [
        (0, "A. 2"),
        (1, "A. 3"),
        (2, "A. 30"),
    ]
    found = report.suites["aqua"]
    assert found["samples"] == 3
    assert found["position_A"] + found["position_B"] + found["position_C"] == pytest.approx(1)
    assert {"consistency", "debiased_accuracy", "entropy"} <= found.keys()


def test_a_release_that_is_too_old_is_refused(tmp_path: Path) -> None:
    data = str(lay(tmp_path, "livebench"))
    suite = {"name": "livebench", "release": "2024-06-24"}
    [fault] = preflight(config(suite, data_folder=data, data_cutoff="2024-08-01"))
    assert "too old" in fault.what
    assert not [*preflight(config(suite, data_folder=data, data_cutoff="2024-05-01"))]
    [bad] = preflight(config({"name": "livebench", "release": "June"}, data_folder=data))
    assert "bad value for `release`" in bad.what
    with pytest.raises(ValueError, match="data_cutoff"):
        config("livebench", data_cutoff="soon")
    old = CHOICES["livebench"](release="2024-06-24").items(Place(None, data))
    assert [item.prompt.text[:4] for item in old] == ["old?"]


def test_a_second_engine_and_an_audit_by_the_command_line(
    tiny_policy: Path, seal: Seal, tmp_path: Path
) -> None:
    data = lay(tmp_path / "data", "aqua")
    found = SUITES["aqua"].items(Place(None, str(data)))
    verdicts = [{"suite": "aqua", "item_id": found[0].prompt.id, "wrong": True, "answer": "3"}]
    (tmp_path / "audit.jsonl").write_text("\n".join(map(json.dumps, verdicts)))
    words = ["--policy", str(tiny_policy), "--scores", str(tmp_path / "scores")]
    options = [
        *("--suites", "[aqua]", "--data-folder", str(data), "--audit", f"{tmp_path}/audit.jsonl"),
        *("--second-engine", "{name: transformers, batch: 1}", "--agreement-items", "2"),
        *("--run-folder", str(tmp_path / "run"), "--tracking", "off"),
    ]
    assert main(["benchmark", *words, *options]) == 0
    told = json.loads((tmp_path / "scores/manifest.json").read_text())["report"]
    assert told["agreement"]["aqua"]["agree"] == 1.0
    assert told["agreement"]["aqua"]["items"] == 2
    assert told["disagreements"] == {}
    assert told["audit"]["aqua"]["error_share"] == 1.0
    assert told["audit"]["aqua"]["raw"] + told["audit"]["aqua"]["corrected"] <= 1.0


@pytest.mark.parametrize(
    ("name", "file", "text", "what"),
    [
        ("bbh", "bbh/bbh.jsonl", '{"task": "snark", "input": "", "target": ""}', "unknown BBH"),
        ("xstest", "xstest/xstest_prompts.csv", "prompt,type\nx,y\n", "missing column `label`"),
        ("xstest", "xstest/xstest_prompts.csv", "prompt,type,label\n", "empty file"),
        ("prmbench", "prmbench/prmbench_all.jsonl", '{"modified_process": 1}', "missing column"),
        ("aqua", "aqua_rat/test.jsonl", '{"question":"","options":["A)1"],"correct":"B"}', "bad o"),
    ],
)
def test_bad_rows_are_told(tmp_path: Path, name: str, file: str, text: str, what: str) -> None:
    path = lay(tmp_path, name) / file
    path.write_text(text)
    [fault] = preflight(config(name, data_folder=str(tmp_path)))
    assert what in fault.what


def test_an_audit_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    data = str(lay(tmp_path, "aqua"))
    [fault] = preflight(config("aqua", data_folder=data, audit=f"{tmp_path}/none.jsonl"))
    assert "none.jsonl" in fault.where


def test_sensitive_rows_are_never_examples(tiny_policy: Path, tmp_path: Path) -> None:
    data = lay(tmp_path / "data", "xstest")
    go(tmp_path, tiny_policy, config("xstest", data_folder=str(data)))
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert examples_of({"sft": rows}, "xstest", 8) == []
    shown = [row.model_copy(update={"sensitive": None}) for row in rows]
    assert len(examples_of({"sft": shown}, "xstest", 8)) == 2


ABSENT = ("abstention", "eifbench", "livebench", "processbench")
"""Suites whose files the folder of public data does not hold: their licences do not let it."""

HARNESS = {"task": "gsm8k", "files": {"test": "gsm8k/test.jsonl"}, "num_fewshot": 0}


def asked(name: str) -> dict[str, object]:
    """A small part of a suite."""
    if name == "lm_eval":
        return {"name": name, "limit": 2, "max_new_tokens": 4} | HARNESS
    drawn = SUITES[name].scorer not in LIKELIHOOD
    return {"name": name, "limit": 2} | ({"max_new_tokens": 4} if drawn else {})


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="no folder of public data files")
@pytest.mark.parametrize("name", [name for name in CHOICES if name not in ABSENT])
def test_every_suite_runs_by_name(
    name: str, tiny_policy: Path, judge: Path, seal: Seal, tmp_path: Path
) -> None:
    prompts = [item.prompt for item in SUITES["countdown"].items(Place())[:2]]
    write_rows(tmp_path / "evaluation", prompts)
    seal(tmp_path / "evaluation", "Prompt")
    given = config(asked(name), data_folder=str(DATA))
    assert not [*preflight(given)]
    ports = {"judge": judge, "evaluation": tmp_path / "evaluation"}
    report = go(tmp_path, tiny_policy, given, **ports)
    [(found, numbers)] = report.suites.items()
    items = CHOICES[name](**{k: v for k, v in asked(name).items() if k != "name"}).items(
        Place(tmp_path / "evaluation", str(DATA))
    )
    assert found.partition(".")[0] == name
    assert numbers["n"] == len(items) == 2
    assert numbers.keys() >= {"low", "high", "stderr", "unscored"}
    assert set(report.by_category[found]) == {item.category for item in items if item.category}
    assert (report.engine, report.seed, len(report.template)) == ("transformers", 0, 16)
    assert {row.item_id for row in read_rows(tmp_path / "scores", Sample)} == {
        item.prompt.id for item in items
    }


@pytest.mark.parametrize(
    "name",
    [n for n, s in SUITES.items() if isinstance(s.source, Upstream) and not s.source.hub],
)
def test_a_suite_without_its_files_says_what_it_needs(name: str, tmp_path: Path) -> None:
    [fault] = preflight(config(name, data_folder=str(tmp_path)))
    source = SUITES[name].source
    assert isinstance(source, Upstream)
    assert all(file in fault.why for file in source.files)
    assert "POSTTRAIN_DATA" in fault.mend
