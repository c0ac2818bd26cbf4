"""The benchmark stage on a tiny policy: what it writes, that it resumes, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.benchmark.conftest import told_without_a_hub

from posttrain.artifacts import Manifest, content_files, read_rows, write_rows
from posttrain.benchmark.stage import BenchmarkConfig, preflight, run, still_holds
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.records import Prompt, Sample, Score, content_id

Seal = Callable[..., Manifest]

PROMPTS = [
    Prompt(
        id=content_id("arithmetic", f"What is {n} plus 1?"),
        text=f"What is {n} plus 1?",
        answer=str(n + 1),
        task="arithmetic",
        source="test",
        difficulty=1 + n % 2,
    )
    for n in range(6)
]


@pytest.fixture
def evaluation(tmp_path: Path, seal: Seal) -> Path:
    write_rows(tmp_path / "evaluation", PROMPTS)
    seal(tmp_path / "evaluation", "Prompt")
    return tmp_path / "evaluation"


def config(*suites: object, **options: object) -> BenchmarkConfig:
    given = {"suites": list(suites), "max_new_tokens": 6, "chunk": 4} | options
    return BenchmarkConfig.model_validate(given)


def test_rows_scores_and_report_agree(
    tiny_policy: Path, evaluation: Path, tmp_path: Path, journal: Journal
) -> None:
    given = config(
        "arithmetic", {"name": "countdown", "limit": 3, "samples": 2}, samples=3, greedy=True
    )
    out = tmp_path / "scores"
    report = run(given, policy=tiny_policy, evaluation=evaluation, scores=out, journal=journal)
    rows = list(read_rows(out, Sample))
    assert len(rows) == 6 * 3 + 3 * 2
    assert {row.item_id for row in rows if row.suite == "arithmetic"} == {p.id for p in PROMPTS}
    assert {row.index for row in rows} == {0, 1, 2}
    assert (report.suites["arithmetic"]["samples"], report.suites["countdown"]["samples"]) == (3, 2)
    assert all(0 < row.tokens <= 6 for row in rows)
    assert len(list(read_rows(out, Sample, "greedy.jsonl"))) == 6 + 3
    table = {(s.suite, s.metric): s for s in read_rows(out, Score, "scores.jsonl")}
    main = table["arithmetic", "pass_at_1"]
    mine = [row.correct for row in rows if row.suite == "arithmetic"]
    assert main.value == pytest.approx(sum(mine) / len(mine))
    assert report.suites["arithmetic"]["pass_at_1"] == main.value
    assert report.suites["arithmetic"]["n"] == main.n == 6
    assert main.low <= main.value < main.high
    assert report.by_difficulty["arithmetic"].keys() == {"1", "2"}
    assert table["arithmetic", "pass_at_1/difficulty_2"].n == 3


def test_a_killed_run_ends_like_an_unbroken_one(
    tiny_policy: Path, evaluation: Path, tmp_path: Path
) -> None:
    given = config("arithmetic", samples=2)
    paths = {"policy": tiny_policy, "evaluation": evaluation}
    whole, half = Journal(tmp_path / "whole"), Journal(tmp_path / "half")
    run(given, **paths, scores=tmp_path / "a", journal=whole)
    done = sorted(path.name for path in whole.scratch.iterdir())
    assert done == ["arithmetic-main-000000.jsonl", "arithmetic-main-000004.jsonl"]
    shutil.copy(whole.scratch / done[0], half.scratch / done[0])
    (half.scratch / f"{done[1]}.partial").write_text("torn")
    run(given, **paths, scores=tmp_path / "b", journal=half)
    assert content_files(tmp_path / "a") == content_files(tmp_path / "b")


def test_another_seed_draws_other_samples(
    tiny_policy: Path, evaluation: Path, tmp_path: Path
) -> None:
    texts = []
    for seed in (0, 1):
        out = tmp_path / f"scores{seed}"
        run(
            config("arithmetic", seed=seed),
            policy=tiny_policy,
            evaluation=evaluation,
            scores=out,
            journal=Journal(tmp_path / f"journal{seed}"),
        )
        texts.append([row.response for row in read_rows(out, Sample)])
    assert texts[0] != texts[1]


def test_multiple_choice_takes_the_likeliest_option(
    tiny_policy: Path, tmp_path: Path, journal: Journal
) -> None:
    data = choice_folder(tmp_path, answer=1)
    given = config({"name": "mmlu_stem", "limit": 2}, data_folder=str(data), samples=4)
    report = run(given, policy=tiny_policy, scores=tmp_path / "scores", journal=journal)
    rows = list(read_rows(tmp_path / "scores", Sample))
    assert len(rows) == 2
    assert all(row.response in ("7", "a long answer of many words") for row in rows)
    assert all(row.logp is not None and row.logp < 0 for row in rows)
    assert report.suites["mmlu_stem"]["accuracy"] == sum(r.correct for r in rows) / 2
    assert still_holds({"scores": tmp_path / "scores"}, given) is None
    choice_folder(tmp_path, answer=0)
    assert "mmlu_stem" in (still_holds({"scores": tmp_path / "scores"}, given) or "")


def choice_folder(root: Path, *, answer: int) -> Path:
    options = ["7", "a long answer of many words"]
    row = {"type": "astronomy", "choices": options, "answer": answer}
    lines = [json.dumps(row | {"question": f"question {n}?"}) for n in range(3)]
    lines.append(json.dumps(row | {"question": "other?", "type": "marketing"}))
    (root / "data/mmlu_stem").mkdir(parents=True, exist_ok=True)
    (root / "data/mmlu_stem/test.jsonl").write_text("\n".join(lines))
    return root / "data"


def test_a_suite_without_items_is_told_before_any_work(tmp_path: Path, journal: Journal) -> None:
    """`bbh` has no hub; the policy's folder does not even exist."""
    given = config("bbh", "held_out", data_folder=str(tmp_path))
    with pytest.raises(ConfigError) as error:
        run(given, policy=tmp_path / "none", scores=tmp_path / "scores", journal=journal)
    assert [fault.what for fault in error.value.faults] == [
        "no items for a suite",
        "no evaluation prompts",
    ]
    assert [fault.what for fault in preflight(given)] == ["no items for a suite"]


def test_an_unreachable_hub_is_told_at_once() -> None:
    """In a process of its own: the hub's client reads its address once."""
    program = (
        "from posttrain.benchmark.stage import BenchmarkConfig, preflight\n"
        "for fault in preflight(BenchmarkConfig(suites=['gsm8k'])): print(fault)"
    )
    [told] = told_without_a_hub(program)
    assert "hub:openai/gsm8k@740312add88f" in told
    assert "POSTTRAIN_DATA" in told


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"question": "2+2?"}', "missing column `answer`"),
        (b'{"question": "2+2?", "answer": "#### 4"', "malformed JSON"),
        (b'{"question": "\xff"}', "invalid UTF-8"),
        (b"", "empty file"),
    ],
)
def test_bad_rows_are_told_with_file_and_line(tmp_path: Path, line: bytes, what: str) -> None:
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/test.jsonl").write_bytes(line)
    [fault] = preflight(config("gsm8k", data_folder=str(tmp_path)))
    assert fault.what == what
    assert "test.jsonl" in fault.where


def test_bad_rows_are_a_fault_of_the_data(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/test.jsonl").write_text("{}")
    given = config("gsm8k", data_folder=str(tmp_path))
    with pytest.raises(DataError, match="missing column"):
        run(given, policy=tmp_path / "none", scores=tmp_path / "scores", journal=journal)


@pytest.mark.parametrize(
    ("suites", "message"),
    [
        (["gsm8q"], "did you mean `gsm8k`"),
        ([{"name": "gsm8k", "limt": 3}], "unknown option `limt`"),
        ([{"name": "gsm8k", "limit": 0}], "bad value for `limit`: 0"),
        ([{"name": "gsm8k", "samples": -1}], "bad value for `samples`: -1"),
        (["arithmetic", "arithmetic"], "named twice"),
    ],
)
def test_suites_that_cannot_be_are_refused(suites: list[object], message: str) -> None:
    faults = [*preflight(config(*suites))]
    assert message in str(faults[0])


def test_greedy_samples_cannot_be_many() -> None:
    with pytest.raises(ValueError, match="all samples are the same"):
        config("arithmetic", temperature=0, samples=2)
