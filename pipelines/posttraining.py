"""The graph: raw rows and a base policy in, a judged champion and a report out.

This file is the table of contents. Each line is a task: its name (section of the recipe, name
in every log and UI), its title, and what flows into it. `posttrain run` executes it here
through `kfp.local`; `make compile` writes it for Kubeflow and for Argo Workflows.
"""

from typing import Any, NamedTuple

from kfp import dsl

from pipelines.steps import Pool, Steps


class Asked(NamedTuple):
    """Parameters of a run that are options of one task."""

    base_model: Any
    registered_model: Any
    data_revision: Any
    train_machines: Any


def chain(step: Steps, asked: Asked) -> None:
    """Every task and what flows between them."""
    raw = step("raw", "Raw rows", revision=asked.data_revision)
    base = step("base", "Base policy", model=asked.base_model)
    data = step("curate", "Curate", rows=raw["rows"])

    sft = step("sft", "Fine-tune", policy=base["policy"], demonstrations=data["demonstrations"])
    judge = step(
        "reward_model", "Reward model", policy=sft["trained"], preferences=data["preferences"]
    )["judge"]
    rejected = step(
        "reject",
        "Rejection sampling",
        policy=sft["trained"],
        prompts=data["prompts"],
        judge=judge,
    )
    rejected_sft = step(
        "rejected_sft",
        "Fine-tune on accepted samples",
        policy=sft["trained"],
        demonstrations=rejected["demonstrations"],
    )
    rl = step(
        "rl",
        "Reinforce",
        machines=asked.train_machines,
        policy=rejected_sft["trained"],
        prompts=data["prompts"],
        judge=judge,
        demonstrations=rejected["demonstrations"],
    )

    policies = {
        "base": base["policy"],
        "sft": sft["trained"],
        "rejected_sft": rejected_sft["trained"],
        "rl": rl["trained"],
    }
    judged = {"evaluation": data["evaluation"], "judge": judge}
    scores = {
        task: step(task, f"Benchmark: {name}", policy=policy, **judged)["scores"]
        for name, policy in policies.items()
        for task in [f"benchmark_{name}"]
    }
    scores["best_of_n"] = step("best_of_n", "Best of N", policy=rl["trained"], **judged)["scores"]
    verdict = step(
        "gate",
        "Gate",
        model_name=asked.registered_model,
        challenger=scores["benchmark_rl"],
        champion=scores["benchmark_sft"],
        policy=rl["trained"],
    )["verdict"]
    told = {"raw": raw["rows"], "reject": rejected["demonstrations"], "reward_model": judge}
    step("report", "Report", **told, **data, **policies, **scores, gate=verdict)


@dsl.pipeline(name="posttraining", display_name="Post-training")
def posttraining(
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    base_model: str = "",
    registered_model: str = "",
    data_revision: str = "",
    budget: float = 0.0,
    train_machines: int = 1,
    accelerator: str = "nvidia.com/gpu",
    train_accelerators: str = "0",
    rollout_accelerators: str = "0",
    cpu_nodes: dict = {},  # noqa: B006 - the form in which KFP reads a default
    train_nodes: dict = {},  # noqa: B006
    rollout_nodes: dict = {},  # noqa: B006
    train_affinity: dict = {},  # noqa: B006
    rollout_affinity: dict = {},  # noqa: B006
    train_memory: str = "4Gi",
    rollout_memory: str = "4Gi",
    tolerations: list = [],  # noqa: B006
):
    """Curate, fine-tune, train a judge, reject, reinforce, score, and decide on the champion.

    Args:
        recipe: Named bundle of options that ships with posttrain, such as demo or real.
        seed: Seed of every random choice. Same seed, same artifacts.
        overrides: Options laid over the recipe, as JSON: {"rl": {"steps": 40}}.
        base_model: Policy to start from: a folder or hub name. Empty: what the recipe says.
        registered_model: Model of the registry whose champion is met. Empty: what the recipe says.
        data_revision: Digest of the raw rows, or its beginning; other rows are refused. Empty: any.
        budget: What a run may cost, in units of the price table. 0: no limit.
        train_machines: Machines of the task `rl`; above 1 it starts a TrainJob and follows it.
        accelerator: Kubernetes resource name of the accelerator, such as nvidia.com/gpu.
        train_accelerators: Accelerators of each training task (sft, reward_model, rl); "0" for CPU.
        rollout_accelerators: Accelerators of each sampling task (reject, best_of_n, benchmark).
        cpu_nodes: Node labels for tasks that neither train nor sample, as JSON. {} is anywhere.
        train_nodes: Node labels for training tasks, as JSON: {"pool": "h200"}.
        rollout_nodes: Node labels for sampling tasks, as JSON.
        train_affinity: Node affinity of training tasks, as JSON: to prefer spot, say.
        rollout_affinity: Node affinity of sampling tasks, as JSON.
        train_memory: Memory of each training task; never more, never less.
        rollout_memory: Memory of each sampling task.
        tolerations: Tolerations of training and sampling tasks, as a JSON list.
    """
    steps = Steps(
        recipe=recipe,
        seed=seed,
        overrides=overrides,
        budget=budget,
        accelerator=accelerator,
        tolerations=tolerations,
        pools={
            "cpu": Pool(cpu_nodes),
            "train": Pool(train_nodes, train_accelerators, train_affinity, train_memory),
            "rollout": Pool(rollout_nodes, rollout_accelerators, rollout_affinity, rollout_memory),
        },
    )
    chain(steps, Asked(base_model, registered_model, data_revision, train_machines))
