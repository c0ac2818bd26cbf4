"""Best-of-N at N = 1, 4, 16, 64 from one generation pass, against N separate passes.

`python benchmarks/best_of_n.py [POLICY]` draws 40 arithmetic items. One pass: our stage at each N,
of which the largest has every smaller one too, timed as a whole (engine, verifier, selectors,
bootstrap) without loading the policy. N separate passes: lm-evaluation-harness on the same model,
prompts, longest length and threads, one drawn answer an item, `evaluate` alone without what it does
once a run; its median time over a few passes times N. Beside it N passes of our own stage. The
passes of one sample take turns, so that a busy machine slows both. `--json FILE` keeps the figures.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from posttrain.artifacts import write_rows
from posttrain.best_of_n.stage import BestOfNConfig, run
from posttrain.journal import Journal
from posttrain.policies import load_policy
from posttrain.records import Prompt, content_id
from posttrain.tasks import TASKS

EMBEDDED = Path(__file__).parents[1] / "src/posttrain/base/tiny"
NS = (1, 4, 16, 64)


def seconds(work: Callable[[], object]) -> float:
    """What one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def write_prompts(folder: Path, items: int) -> list[Prompt]:
    """Distinct arithmetic problems of all four bands, as the stage reads them."""
    rng, found = random.Random(0), dict[str, Prompt]()
    while len(found) < items:
        problem = TASKS["arithmetic"].generate(rng, 1 + len(found) % 4)
        key = content_id("arithmetic", problem.text)
        found[key] = Prompt(
            id=key, text=problem.text, answer=problem.answer, task="arithmetic", source="bench"
        )
    write_rows(folder, found.values())
    return [*found.values()]


def our_pass(
    policy: Path, prompts: Path, n: int, length: int, seed: int
) -> tuple[float, dict[str, Any]]:
    """Seconds of the stage at `n_max` = n without loading the policy, and its report."""
    config = BestOfNConfig(n_max=n, max_new_tokens=length, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        report = run(
            config,
            policy=policy,
            evaluation=prompts,
            scores=Path(folder) / "scores",
            journal=Journal(Path(folder)),
        )
        spent = time.perf_counter() - began
    return spent - seconds(lambda: load_policy(policy)), report.model_dump(mode="json")


def harness(policy: Path, prompts: list[Prompt], length: int) -> Callable[[int], object]:
    """A pass of lm-evaluation-harness over the prompts: one drawn answer each, exact match."""
    from datasets import Dataset
    from lm_eval import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    loaded = load_policy(policy)
    model = HFLM(
        pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=len(prompts), max_length=512
    )
    docs = Dataset.from_list([{"question": p.text, "answer": p.answer} for p in prompts])
    task = {
        "task": "arithmetic_bench",
        "custom_dataset": lambda **_: {"test": docs},
        "test_split": "test",
        "output_type": "generate_until",
        "num_fewshot": 0,
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {
            "until": [str(loaded.tokenizer.eos_token)],
            "do_sample": True,
            "temperature": 1.0,
            "top_k": 0,
            "max_gen_toks": length,
        },
        "filter_list": [
            {
                "name": "last",
                "filter": [
                    {"function": "regex", "regex_pattern": "#### (.*)"},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean"}],
    }

    tasks = TaskManager().load([task])

    def one(seed: int) -> object:
        torch.manual_seed(seed)
        return evaluate(
            model, tasks, apply_chat_template=True, bootstrap_iters=0, verbosity="ERROR"
        )

    return one


def main() -> None:
    """Measure, print a line per N, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, nargs="?", default=EMBEDDED)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--passes", type=int, default=5, help="timed passes of each kind")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    length = given.max_new_tokens
    with tempfile.TemporaryDirectory() as folder:
        prompts = write_prompts(Path(folder), given.items)
        theirs = harness(given.policy, prompts, length)
        warm = theirs(0)
        our_pass(given.policy, Path(folder), 1, length, 0)
        single, own = [], []
        for turn in range(given.passes):
            single.append(seconds(lambda turn=turn: theirs(turn)))
            own.append(our_pass(given.policy, Path(folder), 1, length, turn)[0])
        spent = {n: our_pass(given.policy, Path(folder), n, length, 0) for n in NS}
    one_pass, report = spent[max(NS)]
    print(
        f"{given.items} items, {length} tokens, {torch.get_num_threads()} threads; one pass of"
        f" lm-eval {median(single):.2f} s (right {accuracy(warm):.3f}), of our stage at N=1"
        f" {median(own):.2f} s (right {spent[1][1]['curve'][0]['pass']:.3f})"
    )
    print(
        f"our one pass at N={max(NS)}, which has every smaller N: {one_pass:.2f} s, of which"
        f" generation {report['generation_seconds']:.2f} s"
    )
    figures = []
    for n, (alone, _) in spent.items():
        figures.append(
            {
                "n": n,
                "stage_seconds": alone,
                "harness_seconds": n * median(single),
                "own_passes_seconds": n * median(own),
                "harness_ratio": n * median(single) / alone,
                "own_passes_ratio": n * median(own) / alone,
            }
        )
        print(
            f"N={n:<3} stage {alone:6.2f} s · N lm-eval passes {n * median(single):7.2f} s"
            f" ({n * median(single) / alone:5.1f}x) · N own passes {n * median(own):7.2f} s"
            f" ({n * median(own) / alone:5.1f}x)"
        )
    curve = sum(NS) * median(single) / one_pass
    print(f"the whole curve: {sum(NS)} lm-eval passes over one of ours: {curve:.1f}x")
    if given.json:
        given.json.write_text(json.dumps({"passes": figures, "curve_ratio": curve}, indent=2))


def accuracy(results: Any) -> float:
    """The share that lm-evaluation-harness counted as right."""
    [found] = results["results"].values()
    return float(next(value for key, value in found.items() if key.startswith("exact_match,")))


if __name__ == "__main__":
    main()
