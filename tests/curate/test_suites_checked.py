"""Which suites the training rows were checked against: the report, the manifest and the cache."""

import json
from pathlib import Path

import pytest

from posttrain.curate.stage import CurateConfig, CurateReport, exposure, run
from posttrain.errors import ConfigError
from posttrain.execution import Request, execute
from posttrain.journal import Journal
from posttrain.raw.stage import RawConfig
from posttrain.raw.stage import run as run_raw
from posttrain.stages import load_stage

LEAKED = "Ann has 2 pens and gives one away. How many?"
OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    write_svamp(folder, "Ann has 2 pens and gives one away.")
    return folder


def write_svamp(folder: Path, body: str) -> None:
    (folder / "svamp").mkdir(parents=True, exist_ok=True)
    line = {"ID": "1", "Body": body, "Question": "How many?", "Answer": 1.0}
    (folder / "svamp/test.jsonl").write_text(json.dumps(line) + "\n")


@pytest.fixture
def rows(tmp_path: Path, journal: Journal) -> Path:
    made = [
        {"task": "number", "prompt": LEAKED, "answer": "1"},
        {"task": "number", "prompt": "What is 2 + 3?", "answer": "5"},
        {"task": "number", "prompt": "And 3 + 4?", "answer": "7", "split": "eval"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in made))
    config = RawConfig.model_validate({"sources": [{"name": "jsonl", "paths": [str(file)]}]})
    run_raw(config, rows=tmp_path / "rows", journal=journal)
    return tmp_path / "rows"


def config_of(data: Path, *suites: str) -> CurateConfig:
    contamination = {"name": "contamination", "suites": suites, "data_folder": str(data)}
    return CurateConfig.model_validate({"filters": ["schema", contamination], "workers": 1})


def curate(rows: Path, config: CurateConfig, folder: Path, journal: Journal) -> CurateReport:
    return run(config, rows=rows, **{name: folder / name for name in OUTPUTS}, journal=journal)


def test_the_report_says_what_was_checked_and_found(
    data: Path, rows: Path, tmp_path: Path, journal: Journal
) -> None:
    config = config_of(data, "svamp")
    report = curate(rows, config, tmp_path / "out", journal)
    assert {name: (each.items, each.dropped) for name, each in report.suites.items()} == {
        "evaluation": (1, 0),
        "svamp": (1, 1),
    }
    checked = exposure(config, report.model_dump()).checked
    assert checked is not None
    assert [name.split("@")[0] for name in checked] == ["evaluation", "svamp"]
    without = CurateConfig.model_validate({"filters": ["schema"], "workers": 1})
    report = curate(rows, without, tmp_path / "without", journal)
    assert exposure(without, report.model_dump()).checked == ()


def test_all_suites_are_those_that_can_be_had(
    data: Path, rows: Path, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    report = curate(rows, config_of(data, "all"), tmp_path / "out", journal)
    assert report.suites["svamp"].dropped == 1
    assert {"arithmetic", "countdown"} < report.suites.keys()
    assert "not in the data folder" in report.absent["livebench"]
    assert not report.absent.keys() & report.suites.keys()
    with pytest.raises(ConfigError, match=r"livebench/question\.jsonl"):
        curate(rows, config_of(data, "all", "livebench"), tmp_path / "named", journal)


def test_other_items_of_a_suite_are_checked_again(
    data: Path, rows: Path, tmp_path: Path, seal: object
) -> None:
    assert callable(seal)
    seal(rows, "RawRow")
    request = Request(
        stage=load_stage("curate"),
        task="curate",
        config=config_of(data, "svamp"),
        inputs={"rows": rows},
        outputs={name: tmp_path / "out" / name for name in OUTPUTS},
        store=tmp_path / "store",
    )
    first = execute(request)
    assert first["report"]["dropped"] == 1
    assert execute(request)["cached"]
    write_svamp(data, "Ben had 40 crayons, of which half are lost.")
    again = execute(request)
    assert again["reason"] == "the items of svamp in the data folder have changed"
    assert again["report"]["dropped"] == 0
