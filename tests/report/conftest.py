"""A small run on disk, written as the executor writes it: the input of every report test."""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import Manifest, write_json, write_rows
from posttrain.records import Demonstration, Preference, Prompt, Sample, Score, content_id
from posttrain.statistics import wilson

HOSTILE = '<script>alert("owned")</script><img src=x onerror=alert(1)> &amp; \u202eevil\x00 #### 7'
SKILL = {"base": 0.06, "sft": 0.46, "rejected_sft": 0.53, "rl": 0.66}
SUITES = {"arithmetic": 1.0, "countdown": 0.4, "knights_knaves": 0.6}
ITEMS = 60


class Run:
    """Folders of a run and the digest of each artifact by `task.port`."""

    def __init__(self, home: Path, seal: Callable[..., Manifest], **about: Any) -> None:
        self.home, self.seal, self.about = home, seal, about
        self.folders: list[Path] = []
        self.digests: dict[str, str] = {}

    def add(
        self,
        task: str,
        port: str,
        record: str,
        files: Mapping[str, str] | None = None,
        *,
        stage: str = "",
        reads: Sequence[str] = (),
        report: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        curves: Mapping[str, Sequence[float]] | None = None,
    ) -> Path:
        """Seal the folder of one artifact, which may hold rows already."""
        folder = self.home / task / port
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ({"weights": f"{task} {port}"} if files is None else files).items():
            (folder / name).write_text(text, encoding="utf-8")
        for step in range(len(next(iter((curves or {"": []}).values())))):
            metrics = {name: values[step] for name, values in (curves or {}).items()}
            line = {"step": step, "time": 1.7e9 + step * random.random(), "metrics": metrics}
            with (folder / "curves.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        manifest = self.seal(
            folder,
            record,
            task=task,
            stage=stage or task,
            port=port,
            inputs={f"in{i}": self.digests[name] for i, name in enumerate(reads)},
            report=dict(report or {}),
            config={"seed": 3, **(config or {})},
            seed=3,
            git="0123456789abcdef0123+",
            **self.about,
        )
        self.folders.append(folder)
        self.digests[f"{task}.{port}"] = manifest.digest
        return folder


def samples_of(policy: str, suite: str, skill: float, copies: int = 1) -> list[Sample]:
    """Answers of a policy; harder items are harder, and a better policy keeps most of its wins."""
    rows = []
    for i in range(ITEMS):
        difficulty = 1 + i % 4
        prompt = f"Tom has {i + 3} apples and buys {difficulty + 1} more. How many has he now?"
        item = content_id(suite, prompt)
        bar = random.Random(item).random() * (0.5 + difficulty / 4)
        for index in range(copies):
            luck = random.Random(f"{policy} {item} {index}").gauss(0, 0.15)
            right = bar < skill + luck
            answer = str(i + difficulty + 4)
            text = f"{i + 3} + {difficulty + 1} = {answer}\n#### {answer if right else i}"
            if i == 0:
                text = HOSTILE
            rows.append(
                Sample(
                    suite=suite,
                    item_id=item,
                    index=index,
                    prompt=prompt,
                    answer=answer,
                    response=text,
                    correct=float(right),
                    tokens=len(text.split()),
                    truncated=False,
                    difficulty=difficulty,
                )
            )
    return rows


def score(suite: str, metric: str, value: float, n: int = ITEMS) -> Score:
    low, high = wilson(value, n)
    stderr = math.sqrt(value * (1 - value) / n)
    return Score(suite=suite, metric=metric, value=value, n=n, stderr=stderr, low=low, high=high)


def write_benchmark(run: Run, policy: str, maker: str) -> None:
    task = f"benchmark_{policy}"
    folder = run.home / task / "scores"
    rows = [
        s for suite, ease in SUITES.items() for s in samples_of(policy, suite, SKILL[policy] * ease)
    ]
    write_rows(folder, rows)
    shares = {s: [r.correct for r in rows if r.suite == s] for s in SUITES}
    write_rows(
        folder,
        [score(s, "pass_at_1", sum(v) / len(v)) for s, v in shares.items()],
        "scores.jsonl",
    )
    run.add(task, "scores", "scores", {}, stage="benchmark", reads=[maker, "curate.evaluation"])


def write_best_of_n(run: Run) -> None:
    folder = run.home / "best_of_n" / "scores"
    write_rows(folder, samples_of("rl", "arithmetic", SKILL["rl"], copies=2))
    curve = {
        "pass": (0.66, 0.74, 0.81, 0.86, 0.9),
        "majority": (0.66, 0.66, 0.7, 0.725, 0.74),
        "judge": (0.66, 0.7, 0.735, 0.755, 0.77),
    }
    scores = [
        score("arithmetic", f"{name}@{2**i}", value)
        for name, values in curve.items()
        for i, value in enumerate(values)
    ]
    write_rows(folder, scores, "scores.jsonl")
    reads = ["rl.trained", "curate.evaluation", "reward_model.judge"]
    report = {
        "n_max": 16,
        "tokens": 9000,
        "judge_gain": {"value": 0.11, "low": 0.07, "high": 0.15, "stderr": 0.02},
        "judge_accuracy": 0.79,
        "tokens_per_solved": 812.4,
    }
    curves = {"pass_at_k": [0.66, 0.74]}
    run.add("best_of_n", "scores", "scores", {}, reads=reads, report=report, curves=curves)


def panel() -> dict[str, Any]:
    bins = [
        (0.55, 0.52, 71),
        (0.65, 0.61, 64),
        (0.75, 0.79, 83),
        (0.85, 0.83, 96),
        (0.95, 0.97, 120),
    ]
    return {
        "passed": True,
        "reasons": [],
        "thresholds": {
            "min_accuracy": 0.7,
            "max_ece": 0.15,
            "tolerance": 1e-3,
            "max_bos_flips": 0.02,
        },
        "held_out": {"pairs": 434, "accuracy": 0.781, "low": 0.74, "high": 0.817},
        "slices": {
            "source: generated": {"pairs": 434, "accuracy": 0.781, "low": 0.74, "high": 0.817},
            "chosen is longer": {"pairs": 190, "accuracy": 0.76, "low": 0.69, "high": 0.82},
        },
        "ece": 0.021,
        "reliability": [
            {"low": c - 0.05, "high": c + 0.05, "pairs": n, "confidence": c, "accuracy": a}
            for c, a, n in bins
        ]
        + [{"low": 0.0, "high": 0.1, "pairs": 0, "confidence": 0.0, "accuracy": 0.0}],
        "chosen_mean": 1.2,
        "rejected_mean": -0.8,
        "longer_wins": 0.48,
        "length_correlation": math.nan,
        "invariance": {"padding_left": 2e-6, "padding_right": 1e-6, "order": 0.0, "bos": None},
    }


def curation() -> dict[str, Any]:
    reasons = {
        "schema: no answer": 41,
        "wrong_answer: wrong answer": 320,
        "exact_duplicate: seen before": 250,
        "near_duplicate: like a row before": 180,
        "contamination: an evaluation prompt": 96,
    }
    flow = {"rows_in": 8000, "kept": 7113, "dropped": 887}
    texts = {name: f"Ann had 12 pears and {name}" for name in reasons}
    texts["schema: no answer"] = HOSTILE
    return {
        **flow,
        "shards": [
            {"schema": {"rows_in": 5000, "kept": 4960, "dropped": 40}},
            {"schema": {"rows_in": 3000, "kept": 2999, "dropped": 1}},
        ],
        "length_bias": {"pairs": 1500, "chosen_longer": 0.525, "characters": -3.2},
        "suites": {
            "evaluation": {"items": 600, "version": "ab" * 32, "dropped": 90},
            "svamp": {"items": 1000, "version": "cd" * 32, "dropped": 6},
        },
        "absent": {"livebench": "no hub"},
        "kinds": {"demonstrations": flow},
        "sources": {"generated": flow},
        "filters": {},
        "reasons": reasons,
        "samples": [
            {
                "filter": n.split(": ")[0],
                "reason": n.split(": ")[1],
                "kind": "prompts",
                "id": "0",
                "text": t,
            }
            for n, t in texts.items()
        ],
    }


def verdict() -> dict[str, Any]:
    line = {"n": ITEMS, "p": 0.0002, "p_holm": 0.0006, "detectable": 0.051}
    return {
        "verdict": "pass",
        "reasons": ["arithmetic: significantly better, +0.2000 [+0.1000, +0.3000], p 0.0006"],
        "promoted": True,
        "promotion": "the policy is the champion",
        "rule": "better",
        "alpha": 0.05,
        "margin": 0.02,
        "primary": ["arithmetic"],
        "policy": "ab" * 32,
        "scores": "cd" * 32,
        "baseline": {"kind": "stand_in", "policy": None, "scores": "ef" * 32},
        "suites": [
            {
                "suite": "arithmetic",
                "challenger": 0.66,
                "champion": 0.46,
                "difference": 0.2,
                "low": 0.1,
                "high": 0.3,
                **line,
            },
            {
                "suite": "countdown",
                "challenger": 0.2,
                "champion": math.nan,
                "difference": math.nan,
                "low": math.nan,
                "high": math.nan,
                **line,
            },
        ],
    }


def falling(start: float, end: float, n: int = 60) -> list[float]:
    noise = random.Random(f"{start} {end}")
    return [
        end + (start - end) * math.exp(-i / (n / 5)) + noise.gauss(0, (start - end) * 0.03)
        for i in range(n)
    ]


def write_run(home: Path, seal: Callable[..., Manifest], **about: Any) -> list[Path]:
    """Every artifact of the whole graph, small; `about` overrides manifest fields."""
    run = Run(home, seal, **about)
    run.add("raw", "rows", "RawRow")
    run.add("base", "policy", "policy")
    write_rows(
        home / "curate/prompts",
        [Prompt(id="p", text="t", answer="1", task="arithmetic", source="generated")],
    )
    run.add("curate", "prompts", "Prompt", {}, reads=["raw.rows"], report=curation())
    write_rows(
        home / "curate/demonstrations",
        [
            Demonstration(
                id="d", prompt_id="p", prompt="t", response="r", reward=1, source="generated"
            )
        ],
    )
    run.add("curate", "demonstrations", "Demonstration", {}, reads=["raw.rows"], report=curation())
    write_rows(
        home / "curate/preferences",
        [
            Preference(
                id="f", prompt_id="p", prompt="t", chosen="c", rejected="r", source="generated"
            )
        ],
    )
    run.add("curate", "preferences", "Preference", {}, reads=["raw.rows"], report=curation())
    write_rows(
        home / "curate/evaluation",
        [Prompt(id="e", text="u", answer="2", task="arithmetic", source="generated")],
    )
    run.add("curate", "evaluation", "Prompt", {}, reads=["raw.rows"], report=curation())
    run.add(
        "sft",
        "trained",
        "policy",
        reads=["base.policy", "curate.demonstrations"],
        config={"learning_rate": 3e-3, "epochs": 2.0},
        report={"rows": 4000, "tokens": 400_000, "train_runtime": random.random()},
        curves={
            "loss": falling(2.4, 0.31),
            "token_accuracy": falling(0.2, 0.93),
            "tokens_per_second": falling(random.random(), 1),
        },
    )
    run.add(
        "reward_model",
        "judge",
        "judge",
        {"panel.json": json.dumps(panel())},
        reads=["sft.trained", "curate.preferences"],
        curves={
            "loss": falling(0.7, 0.4),
            "accuracy": falling(0.5, 0.8),
            "margin": falling(0, 2.4),
        },
    )
    run.add(
        "reject",
        "demonstrations",
        "Demonstration",
        reads=["sft.trained", "curate.prompts", "reward_model.judge"],
    )
    run.add(
        "rejected_sft",
        "trained",
        "policy",
        stage="sft",
        reads=["sft.trained", "reject.demonstrations"],
        curves={"loss": falling(0.4, 0.2)},
    )
    reward = falling(0.5, 0.72)
    run.add(
        "rl",
        "trained",
        "policy",
        reads=["rejected_sft.trained", "curate.prompts"],
        curves={
            "reward/mean": [*reward[:30], math.nan, *reward[31:]],
            "pass_rate": falling(0.5, 0.7),
            "kept_groups": falling(0.9, 0.6),
            "entropy": falling(0.5, 0.2),
            "response/length": falling(40, 44),
            "clip_share": falling(0.01, 0.02),
            "all_bad": [math.nan] * 60,
        },
    )
    write_best_of_n(run)
    makers = {
        "base": "base.policy",
        "sft": "sft.trained",
        "rejected_sft": "rejected_sft.trained",
        "rl": "rl.trained",
    }
    for policy, maker in makers.items():
        write_benchmark(run, policy, maker)
    write_json(home / "gate/verdict/verdict.json", verdict())
    run.add(
        "gate",
        "verdict",
        "verdict",
        {},
        reads=["benchmark_rl.scores", "benchmark_sft.scores", "rl.trained"],
    )
    return run.folders


@pytest.fixture(scope="session")
def whole_run(
    tmp_path_factory: pytest.TempPathFactory, seal: Callable[..., Manifest]
) -> list[Path]:
    """The artifacts of a whole run."""
    return write_run(tmp_path_factory.mktemp("run"), seal, started=1.7e9, seconds=4.0)


def records_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Stage records as a launcher finds them: 2 s between tasks, 0.5 s around the work."""
    tasks = [*list(dict.fromkeys(folder.parent.name for folder in folders)), "report"]
    records, at = [], 1.7e9
    for i, task in enumerate(tasks):
        seconds = 3.0 + 7 * (i % 4)
        cached = task == "base"
        stage = "benchmark" if task.startswith("benchmark") else task
        spent = 0.5 if cached else seconds + 0.5
        records.append(
            {
                "task": task,
                "stage": stage,
                "cached": cached,
                "reason": "first run",
                "started": at,
                "ended": at + spent,
                "seconds": seconds,
                "key": "k",
                "config": {},
            }
        )
        at += spent + 2.0
    return records
