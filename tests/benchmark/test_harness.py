"""Tasks of lm-evaluation-harness through the stage: our engine answers, the harness measures."""

import json
import math
import random
import re
from pathlib import Path

import pytest
from tests.benchmark.conftest import DATA, config, go, told_without_a_hub
from tests.conftest import EMBEDDED

from posttrain.artifacts import read_rows
from posttrain.benchmark.harness import EngineLM, cut
from posttrain.benchmark.stage import preflight, still_holds
from posttrain.benchmark.suites import CHOICES, Place
from posttrain.engines import Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.policies import load_policy
from posttrain.records import Sample, Score
from posttrain.rewards.verifiers import verify
from posttrain.tasks import TASKS

FILES = {"test": "gsm8k/test.jsonl"}
ANSWERED = re.compile(r"(?s).*?#### -?[0-9.,]+")
GSM8K = {"name": "lm_eval", "task": "gsm8k", "files": FILES, "num_fewshot": 0}


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose GSM8K test file holds one-step problems of the embedded policy's kind."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    problems = [TASKS["arithmetic"].generate(rng, 1) for _ in range(24)]
    rows = [{"question": p.text, "answer": p.solution} for p in problems]
    (folder / "gsm8k").mkdir()
    (folder / "gsm8k/test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_task_stands_in_the_report_like_any_suite(sums: Path, tmp_path: Path) -> None:
    given = config(GSM8K | {"max_new_tokens": 18}, data_folder=str(sums), chunk=10, greedy=True)
    assert not [*preflight(given)]
    report = go(tmp_path, EMBEDDED, given)
    rows = list(read_rows(tmp_path / "scores", Sample))
    found = report.suites["lm_eval.gsm8k"]
    assert found["n"] == len(rows) == 24
    assert found["low"] < found["exact_match.strict-match"] < found["high"]
    assert found["exact_match.strict-match"] == pytest.approx(sum(r.correct for r in rows) / 24)
    assert found["exact_match.flexible-extract_low"] <= found["exact_match.flexible-extract"]
    assert all(row.prompt.startswith("Question: ") and row.tokens == 18 for row in rows)
    table = {score.metric for score in read_rows(tmp_path / "scores", Score, "scores.jsonl")}
    assert table == {"exact_match.strict-match", "exact_match.flexible-extract"}
    # Our verifier takes nothing but a number for an answer, the harness stops reading behind it.
    told = [(row, said) for row in rows if (said := ANSWERED.match(row.response))]
    ours = [verify("gsm8k", row.prompt, answer(row), said[0]) for row, said in told]
    assert ours == [row.correct == 1 for row, _ in told]
    assert {True, False} == set(ours)
    assert still_holds({"scores": tmp_path / "scores"}, given) is None


def answer(row: Sample) -> str:
    return row.answer.rpartition("####")[2].strip()


def test_the_harness_itself_comes_to_the_same_mean(sums: Path, tmp_path: Path) -> None:
    from lm_eval import evaluate

    options = GSM8K | {"max_new_tokens": 18}
    report = go(tmp_path, EMBEDDED, config(options, data_folder=str(sums)))
    suite = CHOICES["lm_eval"](**{k: v for k, v in options.items() if k != "name"})
    suite.items(Place(None, str(sums)))
    task = suite.scoring["harness"].asked["gsm8k"].task
    model = EngineLM(TransformersEngine(load_policy(EMBEDDED)), Sampling(), 18)
    tasks = {"tasks": {"gsm8k": task}, "groups": {}, "group_map": {}}
    theirs = evaluate(model, tasks, apply_chat_template=True, bootstrap_iters=0)["results"]
    for name in ("strict-match", "flexible-extract"):
        assert report.suites["lm_eval.gsm8k"][f"exact_match.{name}"] == pytest.approx(
            theirs["gsm8k"][f"exact_match,{name}"]
        )


def test_choices_go_by_the_engines_likelihoods(tiny_policy: Path, tmp_path: Path) -> None:
    rows = [
        {"question": f"{n}+1?", "choices": ["1", "2", "3", "4"], "answer": n % 4, "type": kind}
        for kind in ("astronomy", "marketing")
        for n in range(5)
    ]
    (tmp_path / "mmlu.jsonl").write_text("\n".join(map(json.dumps, rows)))
    suite = {
        "name": "lm_eval",
        "task": "mmlu_astronomy",
        "files": {"test": "mmlu.jsonl"},
        "where": {"type": "astronomy"},
        "num_fewshot": 0,
    }
    report = go(tmp_path, tiny_policy, config(suite, data_folder=str(tmp_path)))
    found = list(read_rows(tmp_path / "scores", Sample))
    assert report.suites["lm_eval.mmlu_astronomy"]["n"] == len(found) == 5
    engine = TransformersEngine(load_policy(tiny_policy))
    for row in found:
        logps = engine.logps([row.prompt] * 4, list("ABCD"))
        sums = [math.fsum(tokens[:-1]) for tokens in logps]
        assert row.response == "ABCD"[sums.index(max(sums))]
        assert row.correct == float(row.response == row.answer)
    other = suite | {"where": {"type": "botany"}}
    [fault] = preflight(config(other, data_folder=str(tmp_path)))
    assert fault.what == "no rows for a task"


@pytest.mark.parametrize(
    ("suite", "what"),
    [
        ({"task": "gsm9k"}, "did you mean gsm8k"),
        ({"task": "mmlu"}, "not one task"),
        ({"task": "lambada_openai"}, "output type is loglikelihood"),
        ({"task": "gsm8k", "metric": "bleu"}, "no metric `bleu`"),
        ({"task": "gsm8k", "files": {"test": "none.jsonl"}}, "not all are there"),
        ({"task": "gsm8k_cot_self_consistency"}, "several answers"),
        ({"files": {"test": "other.jsonl"}, "num_fewshot": 0}, "columns that the task reads"),
        ({"task": ["gsm8k"]}, "valid string"),
    ],
)
def test_what_cannot_be_run_is_told_before_any_work(
    suite: dict[str, object], what: str, tmp_path: Path
) -> None:
    (tmp_path / "other.jsonl").write_text('{"problem": "1+1?"}')
    given = {"name": "lm_eval", "task": "gsm8k"} | suite
    [fault] = preflight(config(given, data_folder=str(tmp_path)))
    assert what in str(fault)


def test_a_task_without_files_asks_the_hub(tmp_path: Path) -> None:
    """In a process of its own: the hub's client reads its address once."""
    program = (
        "from posttrain.benchmark.stage import BenchmarkConfig, preflight\n"
        "suites = [{'name': 'lm_eval', 'task': 'arc_easy'}]\n"
        "for fault in preflight(BenchmarkConfig(suites=suites)): print(fault)"
    )
    [told] = told_without_a_hub(program)
    assert "allenai/ai2_arc" in told
    assert "`files`" in told


def test_a_response_ends_before_the_first_stop() -> None:
    assert cut("7\nQ: b\n\nc", ["\n\n", "Q:"]) == "7\n"
    assert cut("7", ["", "Q:"]) == "7"


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="no folder of public data files")
def test_the_harness_and_our_suite_ask_the_same_questions() -> None:
    """GSM8K's test file: the same problems with the same answers."""
    place = Place(None, str(DATA))
    theirs = CHOICES["lm_eval"](task="gsm8k", files=FILES, num_fewshot=0).items(place)
    ours = {item.prompt.text: item.prompt.answer for item in CHOICES["gsm8k"]().items(place)}
    assert len(theirs) == len(ours) == 1319
    for item in theirs:
        question = item.prompt.text.removeprefix("Question: ").removesuffix("\nAnswer:")
        said = item.prompt.answer.rpartition("####")[2].strip().replace(",", "")
        assert ours[question] == said
