"""Kubeflow component of the stage `rl`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("rl"), install_kfp_package=False)
def rl(
    policy: Input[Model],
    prompts: Input[Dataset],
    trained: Output[Model],
    metrics: Output[Metrics],
    judge: Input[Model] = None,
    demonstrations: Input[Dataset] = None,
    machines: int = 1,
    task: str = "rl",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Train a policy by reinforcement learning on rewards."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    given = {"policy": policy, "prompts": prompts, "judge": judge, "demonstrations": demonstrations}
    machines = str(int(machines))
    run_component("rl", metrics, **run, **given, trained=trained, machines=machines)
