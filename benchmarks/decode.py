"""Our engine against `generate` of Hugging Face, in one run on one model.

`python benchmarks/decode.py [POLICY]` prints tokens per second of both and their ratio, for
32 prompts x 8 samples. Only tokens up to and with the end of a response count.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch

from posttrain.engines import Sampling
from posttrain.engines.likelihood import pad_left
from posttrain.engines.transformers import TransformersEngine
from posttrain.policies import Policy, chat_ids, load_policy
from posttrain.tasks import TASKS

EMBEDDED = Path(__file__).parents[1] / "src/posttrain/base/tiny"
ROUNDS = 3


def best_speed(generate: Callable[[], int]) -> float:
    """Tokens per second of the fastest of a few rounds, after one to warm up."""
    generate()
    speeds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        tokens = generate()
        speeds.append(tokens / (time.perf_counter() - began))
    return max(speeds)


def hugging_face(policy: Policy, prompts: list[str], sampling: Sampling) -> int:
    """Tokens drawn by `generate` on the same left-padded batch."""
    rows = [chat_ids(policy.tokenizer, p) for p in prompts for _ in range(sampling.samples)]
    pad = int(policy.tokenizer.pad_token_id)
    padded = pad_left(rows, pad, policy.model.device)
    drawn_BT = policy.model.generate(
        input_ids=padded.ids_BT,
        attention_mask=padded.mask_BT,
        do_sample=True,
        top_k=0,
        temperature=sampling.temperature,
        max_new_tokens=sampling.max_new_tokens,
    )[:, padded.ids_BT.shape[1] :]
    return int((drawn_BT != pad).sum())


def main() -> None:
    """Print both speeds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, nargs="?", default=EMBEDDED)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    given = parser.parse_args()
    policy, rng = load_policy(given.policy), random.Random(0)
    prompts = [TASKS["arithmetic"].generate(rng, 1 + i % 4).text for i in range(32)]
    sampling = Sampling(samples=8, max_new_tokens=given.max_new_tokens)
    engine = TransformersEngine(policy)

    def ours() -> int:
        return sum(len(c.tokens) for group in engine.generate(prompts, sampling) for c in group)

    torch.manual_seed(0)
    own, theirs = best_speed(ours), best_speed(lambda: hugging_face(policy, prompts, sampling))
    print(f"engine {own:.0f} tokens/s, generate {theirs:.0f} tokens/s, ratio {own / theirs:.2f}")


if __name__ == "__main__":
    main()
