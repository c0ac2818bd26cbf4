"""Reward-model training against TRL's RewardTrainer, and batched scoring against one by one.

`python benchmarks/reward_model.py` trains the same model on the same pairs for a few steps with
each contender, turn by turn in one process, so that a busy machine slows all; a ratio is the
median over rounds of their seconds per pair over ours.
Contenders: `ours`, the stage as it is; `unshared`, the stage without shared beginnings; `trl`, the
trainer as TRL's defaults have it (rows drawn at random); `trl_grouped`, TRL with its own option to
group rows by length.
Data: `mistakes`, arithmetic solutions with and without a slip, from the generator; with
POSTTRAIN_DATA also `pandalm` and `hh_rlhf`. `--score` measures scoring alone: wrong solutions,
1, 8 and 64 of a problem, as rejection sampling, RL and Best-of-N ask. `--json FILE` keeps
the figures.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import RewardConfig, RewardTrainer

from posttrain.hf_trainer import quiet, trainer_arguments
from posttrain.journal import Journal
from posttrain.raw.sources.preference_files import preference_files
from posttrain.records import Preference, RawRow, content_id
from posttrain.reward_model.judge import RewardModelJudge, TokenPair, token_pairs
from posttrain.reward_model.pooling import POOLINGS, PoolingName, load_scoring_model
from posttrain.reward_model.sharing import common_length
from posttrain.reward_model.stage import RewardModelConfig
from posttrain.reward_model.trainer import reward_trainer
from posttrain.tasks import BANDS, TASKS, generate_many

EMBEDDED = Path(__file__).parents[1] / "src/posttrain/base/tiny"
REAL = {"pandalm": "pandalm", "hh_rlhf": "hh_rlhf_harmless"}

SAMPLES = (1, 8, 64)


class Clock(TrainerCallback):  # type: ignore[misc]
    """Seconds from the begin of training to the end of its last step."""

    def on_train_begin(self, *_args: Any, **_options: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, *_args: Any, **_options: Any) -> None:
        self.seconds = time.perf_counter() - self.began


def preferences(name: str, count: int) -> list[Preference]:
    """So many pairs of a set, drawn by seed."""
    if name == "mistakes":
        rng, task = random.Random(0), TASKS["arithmetic"]
        problems = generate_many(task, count, dict.fromkeys(BANDS, 1.0), "train", 0)
        sides = [(p.text, p.solution, task.corrupt(rng, p)[0]) for p in problems]
    else:
        folder = os.environ["POSTTRAIN_DATA"]
        rows = preference_files(0, folder=folder, sets=(REAL[name],))
        found = [row for row in rows if isinstance(row, RawRow)]
        sides = [(row.prompt, row.chosen or "", row.rejected or "") for row in found]
        random.Random(0).shuffle(sides)
    return [
        Preference(
            id=content_id(*texts), prompt_id=content_id(texts[0]), prompt=texts[0],
            chosen=texts[1], rejected=texts[2], source=name,
        )
        for texts in sides[:count]
    ]  # fmt: skip


def fitting(name: str, count: int, tokenizer: Any, longest: int) -> list[TokenPair]:
    """Token pairs that the stage would train on."""
    found = token_pairs(tokenizer, preferences(name, 2 * count))
    return [pair for pair in found if pair.longest <= longest][:count]


def trainer_of(
    contender: str,
    config: RewardModelConfig,
    pairs: Sequence[TokenPair],
    tokenizer: Any,
    work: Path,
) -> Any:
    """A fresh model and the contender's trainer of it."""
    torch.manual_seed(0)
    model = load_scoring_model(EMBEDDED, config.pooling)
    if contender in ("ours", "unshared"):
        own = config.model_copy(update={"share_prefix": contender == "ours"})
        return reward_trainer(own, model, tokenizer, list(pairs), Journal(work))
    options = trainer_arguments(config, work, len(pairs))
    options["train_sampling_strategy"] = "group_by_length" if "grouped" in contender else "random"
    # Else the Trainer drops the column of lengths before its sampler asks for it.
    options["remove_unused_columns"] = "grouped" not in contender
    arguments = RewardConfig(**options, center_rewards_coefficient=config.centring or None)
    columns = {
        "chosen_ids": [pair.chosen for pair in pairs],
        "rejected_ids": [pair.rejected for pair in pairs],
        "length": [pair.longest for pair in pairs],
    }
    arguments.length_column_name = "length"
    return RewardTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        processing_class=tokenizer,
    )


def seconds_of(trainer: Any) -> float:
    """Seconds of one pass over the pairs."""
    clock = Clock()
    trainer.remove_callback(PrinterCallback)
    trainer.create_model_card = lambda *_, **__: None
    trainer.add_callback(clock)
    trainer.args.save_strategy = "no"
    trainer.train()
    return clock.seconds


def trained(name: str, pooling: PoolingName, count: int, batch: int, rounds: int) -> dict[str, Any]:
    """Pairs per second of each contender, after one round to warm up."""
    config = RewardModelConfig(pooling=pooling, batch_size=batch, max_length=768)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    pairs = fitting(name, count, tokenizer, config.max_length)
    found: dict[str, list[float]] = {c: [] for c in ("ours", "unshared", "trl", "trl_grouped")}
    for turn in range(rounds + 1):
        for contender, seconds in found.items():
            with tempfile.TemporaryDirectory() as work:
                took = seconds_of(trainer_of(contender, config, pairs, tokenizer, Path(work)))
            if turn:
                seconds.append(took)
    total = sum(len(pair.chosen) + len(pair.rejected) for pair in pairs)
    common = sum(common_length((pair.chosen, pair.rejected)) for pair in pairs)
    figures: dict[str, Any] = {
        "pairs": len(pairs),
        "tokens_per_pair": total / len(pairs),
        "shared_tokens": common / total,
        "pairs_per_second": {c: len(pairs) / median(took) for c, took in found.items()},
        "ratio": {
            c: median(a / b for a, b in zip(took, found["ours"], strict=True))
            for c, took in found.items()
            if c != "ours"
        },
    }
    rates = ", ".join(f"{c} {rate:.1f}" for c, rate in figures["pairs_per_second"].items())
    ratios = ", ".join(f"{c} {ratio:.2f}" for c, ratio in figures["ratio"].items())
    print(f"{name} {pooling}: {total / len(pairs):.0f} tokens a pair, {common / total:.0%} shared")
    print(f"  pairs/s: {rates}\n  our speed over: {ratios}", flush=True)
    return figures


def scored(samples: int, pooling: PoolingName, count: int, rounds: int) -> dict[str, float]:
    """Responses per second together and one by one, `samples` of each problem; the ratio is the
    median over rounds."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    torch.manual_seed(0)
    judge = RewardModelJudge(load_scoring_model(EMBEDDED, pooling), tokenizer)
    rng, task = random.Random(0), TASKS["arithmetic"]
    problems = generate_many(task, count // samples, dict.fromkeys(BANDS, 1.0), "train", 0)
    prompts = [problem.text for problem in problems for _ in range(samples)]
    responses = [task.corrupt(rng, problem)[0] for problem in problems for _ in range(samples)]
    together, alone = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        judge.score(prompts, responses)
        together.append(time.perf_counter() - began)
        began = time.perf_counter()
        for prompt, response in zip(prompts, responses, strict=True):
            judge.score([prompt], [response])
        alone.append(time.perf_counter() - began)
    ratio = median(a / b for a, b in zip(alone[1:], together[1:], strict=True))
    rates = (len(prompts) / median(took[1:]) for took in (together, alone))
    figures = dict(zip(("together", "one_by_one"), rates, strict=True)) | {"ratio": ratio}
    print(f"scoring, {pooling}, {samples} of a prompt: {figures['together']:.0f} a second together,"
          f" {figures['one_by_one']:.0f} one by one, ratio {ratio:.1f}", flush=True)  # fmt: skip
    return figures


def main() -> None:
    """Print the figures of each data set and pooling."""
    parser = argparse.ArgumentParser(description=__doc__)
    real = list(REAL) if os.environ.get("POSTTRAIN_DATA") else []
    parser.add_argument(
        "--data", nargs="+", choices=["mistakes", *REAL], default=["mistakes", *real]
    )
    parser.add_argument("--poolings", nargs="+", choices=list(POOLINGS), default=["last"])
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    quiet()
    figures: dict[str, Any] = {"threads": torch.get_num_threads(), "load": os.getloadavg()[0]}
    for pooling in given.poolings:
        for samples in SAMPLES:
            found = scored(samples, pooling, 4 * max(SAMPLES), given.rounds)
            figures[f"scoring {pooling} {samples}"] = found
        for name in [] if given.score else given.data:
            found = trained(name, pooling, given.pairs, given.batch, given.rounds)
            figures[f"{name} {pooling}"] = found
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
