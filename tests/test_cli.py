"""The one door: help, unknown names, exit codes, JSON for programs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.command_line import parse
from posttrain.errors import ConfigError
from posttrain.stages import STAGES, load_stage


def test_help_lists_every_stage_and_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {stage} " in told for stage in STAGES)
    assert "75 transient" in told


@pytest.mark.parametrize("stage", STAGES)
def test_every_option_has_a_description(stage: str) -> None:
    bare = [n for n, f in load_stage(stage).config.model_fields.items() if not f.description]
    assert not bare


@pytest.mark.parametrize("stage", STAGES)
def test_stage_help_shows_ports_and_options(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([stage, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    loaded = load_stage(stage)
    assert all(f"--{port.name.replace('_', '-')}" in told for port in loaded.ports)
    assert all(f"--{name.replace('_', '-')}" in told for name in loaded.config.model_fields)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["rll"], "did you mean `rl`"),
        (["raw", "--rows", "x", "--sed", "3"], "did you mean `--seed`"),
        (["raw"], "--rows"),
        (["raw", "--rows", "x", "--seed", "many"], "bad value for `seed`"),
        (["raw", "--rows", "x", "--seed", "-1"], "greater than or equal to 0"),
        (["raw", "--rows", "x", "--sources", "[procedurall]"], "did you mean `procedural`"),
        (["raw", "--rows", "x", "--recipe", "demoo"], "unknown recipe `demoo`"),
        (["raw", "--rows", "x", "--recipe", "none.yaml"], "the file is not there"),
        (["raw", "--rows", "x", "--task", "rl"], "not a task of `raw`"),
        (["raw", "--rows", "x", "--overrides", "{"], "not YAML"),
        (["benchmark", "--policy", "p", "--scores", "s", "--suites", "[gsm9k]"], "gsm8k"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_command_line_exits_2_and_says_how_to_mend_it(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "mend:" in error


def test_abbreviated_flags_are_refused() -> None:
    with pytest.raises(ConfigError):
        parse(["raw", "--row", "x"])


def test_help_is_instant() -> None:
    """Far from the limit of a second on a quiet machine, so noise does not fail it."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "posttrain.cli", "--help"], check=True, capture_output=True
    )
    assert time.monotonic() - began < 5


def test_json_is_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"prompt": "1 + 1?", "task": "arithmetic", "answer": "2"}\n')
    code = main(
        [
            *("raw", "--rows", str(tmp_path / "rows"), "--store", str(tmp_path / "store")),
            *("--run-folder", str(tmp_path / "run"), "--tracking", "off", "--json"),
            *("--sources", json.dumps([{"name": "jsonl", "paths": [str(rows)]}])),
            *("--metrics", str(tmp_path / "metrics.json")),
        ]
    )
    assert code == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1
    assert json.loads((tmp_path / "metrics.json").read_text()) == report
