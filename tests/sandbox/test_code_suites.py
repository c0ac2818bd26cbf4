"""The suites of programs through the benchmark stage: counted ends, and a machine without walls."""

import json
from pathlib import Path

import pytest

from posttrain.artifacts import read_rows
from posttrain.benchmark.programs import told
from posttrain.benchmark.stage import BenchmarkConfig, preflight, run
from posttrain.benchmark.suites import CHOICES, Place
from posttrain.benchmark.suites.mbpp import needed
from posttrain.errors import ConfigError, DataError, TransientError
from posttrain.journal import Journal
from posttrain.records import Sample
from posttrain.sandbox import first_working, remote
from posttrain.sandbox.backends import Backend
from posttrain.sandbox.verdicts import CodeTests, Verdict, examine

needs_walls = pytest.mark.skipif(
    not isinstance(first_working(), Backend), reason=f"no sandbox: {first_working()}"
)

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\ndef half(x):\n    """ Half of x. """\n',
    "entry_point": "half",
    "canonical_solution": "    return math.fsum([x]) / 2\n",
    "test": "def check(candidate):\n    assert candidate(3) == 1.5\n",
}
MBPP = {
    "text": "Write a function to double a number.",
    "code": "import math\r\nclass Two: pass\r\ndef sum(x):\r\n  return 2 * x",
    "task_id": 11,
    "test_setup_code": "",
    "test_list": ["assert sum(2) == 4", "assert math.isclose(sum(0.1), 0.2)"],
    "challenge_test_list": [],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, file, row in (
        ("humaneval", "HumanEval.jsonl", HUMANEVAL),
        ("mbpp", "mbpp.jsonl", MBPP),
    ):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / file).write_text(json.dumps(row))
    return tmp_path / "data"


def read_tests(name: str, data: Path) -> CodeTests:
    [item] = CHOICES[name]().items(Place(None, str(data)))
    return CodeTests.model_validate_json(item.prompt.answer)


@needs_walls
def test_a_body_or_a_whole_function_may_follow_the_prompt(data: Path) -> None:
    tests = read_tests("humaneval", data)
    assert examine(HUMANEVAL["canonical_solution"], tests).result == "passed"
    assert examine("def half(x):\n    return x / 2", tests).result == "passed"
    assert examine("", tests).result == "failed"


@needs_walls
def test_the_reference_tells_the_names_and_imports(data: Path) -> None:
    tests = read_tests("mbpp", data)
    assert tests.names == ("sum",)
    assert tests.tests.startswith("import math\n")
    assert examine("def sum(x): return x + x", tests).result == "passed"
    assert examine("def add(x): return x + x", tests).result == "error"
    assert needed("n = Node(1)\nassert f(n) == C", "C = 1\nclass Node: pass\ndef f(n): n = 2") == (
        ("C", "Node", "f"),
        "",
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"test_list": []}, "bad tests"),
        ({"test_list": ["assert ("]}, "bad Python"),
        ({"code": "x = 1"}, "bad tests"),
    ],
)
def test_rows_that_cannot_be_tests_are_told(
    data: Path, change: dict[str, object], what: str
) -> None:
    (data / "mbpp/mbpp.jsonl").write_text(json.dumps(MBPP | change))
    with pytest.raises(DataError, match=what):
        CHOICES["mbpp"]().items(Place(None, str(data)))


@needs_walls
def test_the_stage_runs_programs_and_counts_their_ends(
    tiny_policy: Path, data: Path, tmp_path: Path, journal: Journal
) -> None:
    suites = [{"name": "humaneval", "workers": 2, "max_new_tokens": 8}, "mbpp"]
    given = {"suites": suites, "data_folder": str(data), "samples": 3, "max_new_tokens": 8}
    config = BenchmarkConfig.model_validate(given)
    assert list(preflight(config)) == []
    report = run(config, policy=tiny_policy, scores=tmp_path / "scores", journal=journal)
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert len(rows) == 6
    for name in ("humaneval", "mbpp"):
        numbers = report.suites[name]
        assert numbers["pass_at_1"] == 0.0
        assert numbers["failed"] + numbers["error"] == 1.0
        assert numbers["timeout"] == numbers["memory"] == 0.0
    assert all((row.measures or {})["run_seconds"] > 0 for row in rows)


def test_a_verdict_becomes_a_row() -> None:
    row = Sample(suite="mbpp", item_id="1", index=0, prompt="", answer="", response="",
                 correct=0.0, tokens=1, truncated=False)  # fmt: skip
    passed = told(row, Verdict("passed", "", 0.5))
    assert (passed.correct, passed.measures) == (1.0, {"run_seconds": 0.5})
    ended = told(row, Verdict("timeout", "", 10.0))
    assert (ended.correct, ended.measures) == (0.0, {"run_seconds": 10.0, "timeout": 1.0})


def test_a_machine_without_a_sandbox_is_told_before_any_work(
    data: Path, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy's folder does not even exist."""
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "jail")
    given = {"suites": ["mbpp"], "data_folder": str(data)}
    config = BenchmarkConfig.model_validate(given)
    assert [fault.what for fault in preflight(config)] == ["unknown backend `jail`"]
    with pytest.raises(ConfigError, match="unknown backend"):
        run(config, policy=tmp_path / "no", scores=tmp_path / "scores", journal=journal)


def test_a_service_that_is_away_is_told_before_any_work(
    data: Path, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Safe to run again, so the exit code is another one than without walls."""
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "http://127.0.0.1:9")
    monkeypatch.setattr(remote, "AWAY_SECONDS", 0.0)
    config = BenchmarkConfig.model_validate({"suites": ["mbpp"], "data_folder": str(data)})
    assert [fault.what for fault in preflight(config)] == ["the sandbox service does not answer"]
    with pytest.raises(TransientError):
        run(config, policy=tmp_path / "no", scores=tmp_path / "scores", journal=journal)


def test_limits_alone_need_a_word(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "limits")
    found = examine("def sum(x): return 2 * x", read_tests("mbpp", data))
    assert found.result == "passed"
    assert examine("import os; os._exit(0)", read_tests("mbpp", data)).result == "died"
