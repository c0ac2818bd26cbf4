"""What tests of suites share: small files in upstream's form, a tiny judge, a call of `run`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from posttrain.artifacts import Manifest
from posttrain.benchmark.stage import BenchmarkConfig, BenchmarkReport, run
from posttrain.journal import Journal

DATA = Path(
    os.environ.get("POSTTRAIN_DATA") or Path(__file__).parents[2].resolve() / "../shared/data"
)

Seal = Callable[..., Manifest]
COMMA = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
STEPS = {"modified_process": ["1. a", "2. b"], "classification": "circular"}
ANSWERED = {"messages": [{"content": "q"}, {"content": {"answer": "theirs"}}]}
PARTS = {"k1": {"instruction": "Be brief.", "scoring_questions": ["Is it brief?", "And clear?"]}}
LIVE = {"task": "zebra", "ground_truth": "4", "livebench_removal_date": ""}

FILES: dict[str, dict[str, list[dict[str, object]] | str]] = {
    "aqua": {
        "aqua_rat/test.jsonl": [
            {"question": "1+1?", "options": ["A)2", "B)3", "C) 30"], "correct": "A"},
            {"question": "1+2?", "options": ["A)2", "B)3", "C) 30"], "correct": "B"},
        ]
    },
    "bbh": {"bbh/bbh.jsonl": [{"task": "snarks", "input": "Which?", "target": "(A)"}]},
    "truthfulqa": {
        "truthfulqa/TruthfulQA.csv": "Category,Question,Best Answer,Correct Answers,"
        "Incorrect Answers\nLaw,Who?,Nobody,Nobody; No one,All; Some\n"
    },
    "ifeval": {
        "ifeval/ifeval_input_data.jsonl": [
            {"prompt": "Say a.", **COMMA},
            {"prompt": "Say b.", "instruction_id_list": ["new:kind"], "kwargs": [{}]},
        ]
    },
    "xstest": {
        "xstest/xstest_prompts.csv": "prompt,type,label\nKill a process?,homonyms,safe\n"
        "Harm?,contrast_homonyms,unsafe\n"
    },
    "usb": {
        "xstest/xstest_prompts.csv": "prompt,type,label\nKill a process?,homonyms,safe\n"
        "Harm?,contrast_homonyms,unsafe\n"
    },
    "prmbench": {
        "prmbench/prmbench_all.jsonl": [
            {"modified_question": "q1", "error_steps": [2], **STEPS},
            {"modified_question": "q2", "error_steps": [], **STEPS},
        ]
    },
    "processbench": {
        f"processbench/{part}.jsonl": [{"problem": f"{part}?", "steps": ["a", "b"], "label": at}]
        for part, at in (("gsm8k", -1), ("math", 0), ("olympiadbench", 1), ("omnimath", -1))
    },
    "abstention": {
        "abstention/items.jsonl": [
            {"text": "It fails.", "vagueness": 3},
            {"text": "Fix it.", "patch": "+x", "wrong": 1, "passed": 0.5},
        ]
    },
    "livebench": {
        "livebench/question.jsonl": [
            {"turns": ["old?"], "livebench_release_date": "2024-06-24", **LIVE},
            {"turns": ["new?"], "livebench_release_date": "2024-11-25T00:00:00", **LIVE},
            {"turns": ["code?"], "livebench_release_date": "2024-06-24", "task": "code"},
        ]
    },
    "eifbench": {"eifbench/eifbench.jsonl": [{"input": "Do:", "sub_instructions": PARTS}]},
    "personagym": {
        "personagym/personagym_questions.jsonl": [
            {"persona": "A cook", "task": "Expected Action", "question": "And now?"}
        ]
    },
    "mt_bench": {
        "mt_bench/mt_bench_question.jsonl": [
            {"question_id": 1, "category": "math", "turns": ["1+1?", "Sure?"]},
            {"question_id": 2, "category": "math", "turns": ["without an answer", "x"]},
        ],
        "mt_bench/mt_bench_reference_gpt-4.jsonl": [
            {"question_id": 1, "choices": [{"turns": ["2", "Yes"]}]}
        ],
    },
    "arena_hard": {
        "arena_hard/arena_hard_v0.1_question.jsonl": [{"uid": "u", "prompt": "Write."}],
        "arena_hard/arena_hard_v0.1_answers_gpt-4-0613.jsonl": [{"uid": "u", **ANSWERED}],
    },
}

JUDGED = ("eifbench", "personagym", "mt_bench", "arena_hard")


def lay(root: Path, name: str) -> Path:
    """Write the files of a suite below `root`."""
    for file, content in FILES[name].items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
        path.write_text(text, encoding="utf-8")
    return root


def config(*suites: object, **options: object) -> BenchmarkConfig:
    given = {"suites": list(suites), "max_new_tokens": 4, "chunk": 4} | options
    return BenchmarkConfig.model_validate(given)


def go(root: Path, policy: Path, given: BenchmarkConfig, **ports: Path) -> BenchmarkReport:
    journal = Journal(root / "journal")
    return run(given, policy=policy, scores=root / "scores", journal=journal, **ports)


def told_without_a_hub(program: str) -> list[str]:
    """The faults that a program prints, one each, in a process whose hub is out of reach."""
    away = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "no_proxy": "*"}
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=kept | away | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return re.split(r"\n(?=\S)", found.stdout.strip())
