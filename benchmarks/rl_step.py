"""One step of our RL loop against TRL's GRPOTrainer, and our engine against `generate`.

`python benchmarks/rl_step.py` runs both on the same weights, prompts, lengths and threads in one
process, turn by turn, so that a busy machine slows both; a ratio is the median over rounds of
their seconds per token of a completion over ours. `--growth` doubles group, prompts and length
instead, and prints the exponent of our cost. `--json FILE` keeps the figures.
Settings: `full` (no completion ends early) and `ragged` (each token ends it with chance 1/64) on
random weights of a shape, `trained` on the embedded base as it is.
"""

import argparse
import ctypes
import json
import math
import os
import platform
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, trainer_callback

from posttrain.artifacts import write_rows
from posttrain.engines.likelihood import pad_left
from posttrain.journal import Journal
from posttrain.policies import chat_ids, load_policy, save_policy
from posttrain.records import Prompt, content_id
from posttrain.rewards import REWARDS
from posttrain.rl.config import RLConfig
from posttrain.rl.experience import estimated, lessons
from posttrain.rl.parts import Loop, build_parts
from posttrain.rl.rollout import Rollout
from posttrain.rl.scored import Scored
from posttrain.tasks import TASKS

EMBEDDED = Path(__file__).parents[1] / "src/posttrain/base/tiny"
SHAPES: dict[str, dict[str, int]] = {
    "1m": {"hidden_size": 160, "intermediate_size": 384, "num_attention_heads": 4},
    "tiny": {},
    "3m": {"hidden_size": 256, "intermediate_size": 832, "num_attention_heads": 8},
}
CHANCES = {"full": 0.0, "ragged": 1 / 64}
BIAS_CHANNEL = 0
LIBC = ctypes.CDLL("libc.so.6") if platform.libc_ver()[0] == "glibc" else None


class Size(NamedTuple):
    """How much a step does."""

    prompts: int = 8
    group: int = 8
    length: int = 128


class Cost(NamedTuple):
    """What one step, or one call of an engine, took; peak memory in MiB above what it began with.

    `forward`: log-probs with a gradient; `update` all that follows the rollout, `forward` too.
    """

    tokens: int
    seconds: float
    rollout: float
    forward: float
    update: float
    peak: float


def spread(ids: Sequence[int]) -> float:
    """A reward that differs between completions, so that every group has a gradient."""
    return sum(ids) % 97 / 97


def spread_reward(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
    """`spread` for our loop."""
    return [spread(rollout.tokens) for rollout in rollouts]


def random_policy(folder: Path, shape: Mapping[str, int], chance: float) -> None:
    """Write random weights whose every token ends the completion with this chance.

    One channel of the residual stream is the same for all tokens and no layer writes to it, so
    that the tied embedding of the end token acts as a bias.
    """
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    config = AutoConfig.from_pretrained(EMBEDDED, **shape)
    model = AutoModelForCausalLM.from_config(config)
    odds = chance / (1 - chance) * (config.vocab_size - 1)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[BIAS_CHANNEL] = 0
            layer.mlp.down_proj.weight[BIAS_CHANNEL] = 0
        table_VH = model.get_input_embeddings().weight
        table_VH[:, BIAS_CHANNEL] = 1.0
        bias = math.log(odds) if odds else -60.0
        table_VH[config.eos_token_id, BIAS_CHANNEL] += bias / math.sqrt(config.hidden_size)
    model.generation_config.eos_token_id = config.eos_token_id
    model.generation_config.pad_token_id = config.pad_token_id
    save_policy(model, tokenizer, folder)


def resident(key: str) -> float:
    """Memory of this process in MiB; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(key)), 0.0)


class Peak:
    """Peak memory since `start`."""

    def start(self) -> None:
        """Forget earlier peaks; where that is not allowed, peaks only ever rise."""
        if LIBC is not None:
            LIBC.malloc_trim(0)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.before = resident("VmRSS")

    def taken(self) -> float:
        """MiB above the start."""
        return resident("VmHWM") - self.before


def timed(
    seconds: defaultdict[str, float], name: str, function: Callable[..., Any]
) -> Callable[..., Any]:
    """The function, its seconds added up."""

    def run(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = function(*args, **options)
        seconds[name] += time.perf_counter() - began
        return found

    return run


class Ours:
    """The loop of the stage `rl`, step by step."""

    def __init__(self, folder: Path, prompts: list[str], size: Size, work: Path) -> None:
        rows = [
            Prompt(
                id=content_id("arithmetic", text),
                text=text,
                answer="1",
                task="arithmetic",
                source="benchmark",
            )
            for text in prompts
        ]
        write_rows(work / "prompts", rows)
        REWARDS["spread"] = spread_reward
        self.config = RLConfig.model_validate(
            {
                "steps": 1000,
                "prompts_per_step": size.prompts,
                "group_size": size.group,
                "max_new_tokens": size.length,
                "rewards": ["spread"],
            }
        )
        parts = build_parts(self.config, has_judge=False, has_demonstrations=False)
        journal = Journal(work / "journal")
        self.loop = Loop.of(self.config, parts, folder, work / "prompts", None, None, journal)
        self.clock, self.peak, self.at = defaultdict[str, float](float), Peak(), 0
        read = self.loop.learner.reader
        read.scores = timed(self.clock, "forward", read.scores)  # type: ignore[method-assign]

    def step(self) -> Cost:
        """As in `posttrain.rl.stage`."""
        parts, learner, critic, explorer, ledger = self.loop
        self.peak.start()
        began = time.perf_counter()
        before = explorer.pool.stats.copy()
        drawn = parts.controller.collect(explorer, self.at, self.config.prompts_per_step)
        rolled_out = time.perf_counter()
        scored = Scored(drawn.counted, before, critic.assess(drawn.counted), learner)
        estimate = estimated(scored, parts.advantage, parts.transforms)
        fresh = lessons(scored, estimate, drawn.dropped, keep_silent=False, mask_truncated=False)
        batches = parts.replay.compose(fresh, self.at)
        metrics = learner.learn(batches, self.config.learning_rate)
        metrics |= {
            "time/rollout": rolled_out - began,
            "time/update": time.perf_counter() - rolled_out,
        }
        ledger.enter(self.at, drawn, [lesson for batch in batches for lesson in batch], metrics)
        done = time.perf_counter()
        self.at += 1
        tokens = sum(len(rollout.tokens) for group in drawn.generated for rollout in group)
        forward = self.clock.pop("forward", 0.0)
        return Cost(
            tokens, done - began, rolled_out - began, forward, done - rolled_out, self.peak.taken()
        )


def generate_cost(folder: Path, prompts: list[str], size: Size) -> Callable[[], Cost]:
    """`generate` of Hugging Face on the same rows, padded on the left."""
    policy, peak = load_policy(folder), Peak()
    rows = [chat_ids(policy.tokenizer, p) for p in prompts for _ in range(size.group)]
    pad = int(policy.tokenizer.pad_token_id)
    padded = pad_left(rows, pad, policy.model.device)

    def call() -> Cost:
        peak.start()
        began = time.perf_counter()
        drawn_BT = policy.model.generate(
            input_ids=padded.ids_BT,
            attention_mask=padded.mask_BT,
            do_sample=True,
            top_k=0,
            max_new_tokens=size.length,
        )[:, padded.ids_BT.shape[1] :]
        seconds = time.perf_counter() - began
        ended_BT = (drawn_BT == policy.tokenizer.eos_token_id).long()
        tokens = int((ended_BT.cumsum(1) - ended_BT == 0).sum())
        return Cost(tokens, seconds, seconds, 0.0, 0.0, peak.taken())

    return call


def trl_trainer(
    folder: Path, prompts: list[str], size: Size, rounds: int, between: Callable[[Cost], None]
) -> Any:
    """A GRPOTrainer that tells `between` what each of its steps cost."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    clock, peak, rows = defaultdict[str, float](float), Peak(), size.prompts * size.group
    drawn = [0]

    class Turn(trainer_callback.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_args: Any, **_options: Any) -> None:
            peak.start()
            self.began = time.perf_counter()

        def on_step_end(self, *_args: Any, **_options: Any) -> None:
            seconds = time.perf_counter() - self.began
            rollout, forward = clock.pop("rollout", 0.0), clock.pop("forward", 0.0)
            update = seconds - rollout
            between(Cost(drawn[0], seconds, rollout, forward, update, peak.taken()))

    def reward(completion_ids: list[list[int]], **_columns: Any) -> list[float]:
        drawn[0] = sum(map(len, completion_ids))
        return [spread(ids) for ids in completion_ids]

    work = tempfile.mkdtemp(dir=folder.parent)
    options = GRPOConfig(
        output_dir=work,
        per_device_train_batch_size=rows,
        num_generations=size.group,
        max_completion_length=size.length,
        max_steps=rounds,
        learning_rate=1e-6,
        beta=0.0,
        lr_scheduler_type="constant",
        activation_checkpointing=False,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    policy = load_policy(folder, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=options,
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": text}]} for text in prompts]
        ),
        processing_class=policy.tokenizer,
        callbacks=[Turn()],
    )
    trainer.remove_callback(trainer_callback.PrinterCallback)
    score, forward = trainer._generate_and_score_completions, "_get_per_token_logps_and_entropies"
    trainer._generate_and_score_completions = timed(clock, "rollout", score)
    setattr(trainer, forward, timed(clock, "forward", getattr(trainer, forward)))
    return trainer


def compared(folder: Path, size: Size, rounds: int) -> dict[str, list[Cost]]:
    """The costs of each contender, round by round, after one round to warm up."""
    rng = random.Random(0)
    prompts = [TASKS["arithmetic"].generate(rng, 1 + i % 4).text for i in range(size.prompts)]
    found: dict[str, list[Cost]] = {"ours": [], "trl": [], "generate": []}
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        ours = Ours(folder, prompts, size, Path(work))
        generate = generate_cost(folder, prompts, size)

        def between(cost: Cost) -> None:
            found["trl"].append(cost)
            found["ours"].append(ours.step())
            found["generate"].append(generate())

        trl_trainer(folder, prompts, size, rounds + 1, between).train()
    return {name: costs[1:] for name, costs in found.items()}


def per_token(part: str) -> Callable[[Cost], float]:
    """Seconds per token of a completion that a part takes."""
    return lambda cost: float(getattr(cost, part)) / max(1, cost.tokens)


def report(setting: str, found: Mapping[str, list[Cost]]) -> dict[str, Any]:
    """Print a table of medians; the figures."""
    figures: dict[str, Any] = {"setting": setting, "ratio": {}}
    print(f"\n{setting:22}{'tokens':>8}{'step s':>9}{'rollout':>9}{'forward':>9}{'update':>9}"
          f"{'tok/s':>9}{'drawn/s':>9}{'peak MiB':>10}")  # fmt: skip
    for name, costs in found.items():
        mid = Cost(*(median(column) for column in zip(*costs, strict=True)))
        figures[name] = mid._asdict()
        print(f"{name:22}{mid.tokens:8.0f}{mid.seconds:9.3f}{mid.rollout:9.3f}{mid.forward:9.3f}"
              f"{mid.update:9.3f}{mid.tokens / mid.seconds:9.0f}{mid.tokens / mid.rollout:9.0f}"
              f"{mid.peak:10.0f}")  # fmt: skip
    pairs = {
        "step": ("trl", "seconds"),
        "update": ("trl", "update"),
        "rollout": ("trl", "rollout"),
        "generate": ("generate", "rollout"),
    }
    for name, (other, part) in pairs.items():
        cost = per_token(part)
        figures["ratio"][name] = median(
            cost(theirs) / cost(own)
            for theirs, own in zip(found[other], found["ours"], strict=True)
        )
    print("ratios per token: " + ", ".join(f"{k} {v:.2f}" for k, v in figures["ratio"].items()))
    return figures


def growth(folder: Path, rounds: int) -> dict[str, float]:
    """Exponents of our step's seconds as each of its sizes doubles twice; 1 is linear."""
    start = Size()
    found = {}
    for name in Size._fields:
        seconds = []
        for factor in (1, 2, 4):
            size = start._replace(**{name: getattr(start, name) * factor})
            rng = random.Random(0)
            prompts = [TASKS["arithmetic"].generate(rng, 1 + i % 4).text for i in range(1000)]
            prompts = list(dict.fromkeys(prompts))[: size.prompts]
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                ours = Ours(folder, prompts, size, Path(work))
                ours.step()
                seconds.append(median(ours.step().seconds for _ in range(rounds)))
        found[name] = math.log2(seconds[-1] / seconds[0]) / 2
        shown = ", ".join(f"{value:.2f}" for value in seconds)
        print(f"{name} x 1, 2, 4: {shown} s, exponent {found[name]:.2f}")
    return found


def main() -> None:
    """Print a table for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--settings", nargs="+", choices=[*CHANCES, "trained"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    settings = given.settings or [*CHANCES, *["trained"][: given.shape == "tiny"]]
    figures: dict[str, Any] = {
        "shape": given.shape,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as work:
        for setting in settings:
            folder = EMBEDDED
            if setting in CHANCES:
                folder = Path(work) / setting
                random_policy(folder, SHAPES[given.shape], CHANCES[setting])
            if given.growth:
                figures["growth"] = growth(folder, given.rounds)
                break
            found = compared(folder, Size(), given.rounds)
            figures[setting] = report(f"{given.shape} {setting}", found)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
