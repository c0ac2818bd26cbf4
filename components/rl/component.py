"""Kubeflow component of the stage `rl`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def rl(
    policy: Input[Model],
    prompts: Input[Dataset],
    trained: Output[Model],
    metrics: Output[Metrics],
    judge: Input[Model] = None,
    demonstrations: Input[Dataset] = None,
    task: str = "rl",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Train a policy by reinforcement learning on rewards."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    given = {"policy": policy, "prompts": prompts, "judge": judge, "demonstrations": demonstrations}
    run_component("rl", metrics, **run, **given, trained=trained)
