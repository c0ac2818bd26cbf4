"""Scheduled evaluation: is the policy that people use still as good as it was?

`base_model` names the policy. The gate compares it with the champion in the model registry,
so that a drift of the policy, the data or the software shows the next morning. While the
registry has no champion the policy is compared with itself, which never passes.
"""

from typing import Any, NamedTuple

from kfp import dsl

from pipelines.steps import NIGHTLY, Pool, Steps

SCHEDULE = "30 2 * * *"
TIMEZONE = "Etc/UTC"


class Asked(NamedTuple):
    """Parameters of a run that are options of one task."""

    base_model: Any
    judge: Any
    registered_model: Any
    data_revision: Any


def evaluation(step: Steps, asked: Asked) -> None:
    """Every task and what flows between them."""
    raw = step("raw", "Raw rows", revision=asked.data_revision)
    data = step("curate", "Curate", rows=raw["rows"])
    base = step("base", "Policy", model=asked.base_model)
    evaluated = {
        "policy": base["policy"],
        "evaluation": data["evaluation"],
        "judge": step("judge", "Judge", folder=asked.judge)["judge"],
    }

    best_of_n = step("best_of_n", "Best of N", **evaluated)
    scores = step("benchmark_rl", "Benchmark", **evaluated)["scores"]
    gate = step(
        "gate",
        "Gate",
        challenger=scores,
        champion=scores,
        policy=base["policy"],
        model_name=asked.registered_model,
    )
    step(
        "report",
        "Report",
        raw=raw["rows"],
        evaluation=data["evaluation"],
        base=base["policy"],
        best_of_n=best_of_n["scores"],
        benchmark_rl=scores,
        gate=gate["verdict"],
    )


@dsl.pipeline(name="nightly-eval", display_name="Nightly evaluation")
def nightly_eval(
    recipe: str = "nightly",
    seed: int = 0,
    overrides: str = "",
    base_model: str = "",
    judge: str = "",
    registered_model: str = "",
    data_revision: str = "",
    budget: float = 0.0,
    accelerator: str = "nvidia.com/gpu",
    rollout_accelerators: str = "0",
    cpu_nodes: dict = {},  # noqa: B006 - the form in which KFP reads a default
    rollout_nodes: dict = {},  # noqa: B006
    rollout_affinity: dict = {},  # noqa: B006
    rollout_memory: str = "4Gi",
    tolerations: list = [],  # noqa: B006
):
    """Sample, score and compare one policy, without training anything.

    Args:
        recipe: Named bundle of options that ships with posttrain, such as nightly or real.
        seed: Seed of every random choice. Same seed, same artifacts.
        overrides: Options laid over the recipe, as JSON: {"benchmark": {"samples": 4}}.
        base_model: Policy to evaluate: a folder or hub name. Empty: what the recipe says.
        judge: Folder of the judge for suites that need one. Empty: what the recipe says.
        registered_model: Model of the registry whose champion is met. Empty: what the recipe says.
        data_revision: Digest of the raw rows, or its beginning; other rows are refused. Empty: any.
        budget: What a run may cost, in units of the price table. 0: no limit.
        accelerator: Kubernetes resource name of the accelerator, such as nvidia.com/gpu.
        rollout_accelerators: Accelerators of each sampling task; "0" for CPU.
        cpu_nodes: Node labels for tasks that do not sample, as JSON. {} is anywhere.
        rollout_nodes: Node labels for sampling tasks, as JSON: {"pool": "l40s"}.
        rollout_affinity: Node affinity of sampling tasks, as JSON: to prefer spot, say.
        rollout_memory: Memory of each sampling task; never more, never less.
        tolerations: Tolerations of sampling tasks, as a JSON list.
    """
    steps = Steps(
        recipe=recipe,
        seed=seed,
        overrides=overrides,
        budget=budget,
        priority=NIGHTLY,
        accelerator=accelerator,
        tolerations=tolerations,
        pools={
            "cpu": Pool(cpu_nodes),
            "rollout": Pool(rollout_nodes, rollout_accelerators, rollout_affinity, rollout_memory),
        },
    )
    evaluation(steps, Asked(base_model, judge, registered_model, data_revision))
