"""Kubeflow component of the stage `reject`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("reject"), install_kfp_package=False)
def reject(
    policy: Input[Model],
    prompts: Input[Dataset],
    demonstrations: Output[Dataset],
    metrics: Output[Metrics],
    judge: Input[Model] = None,
    task: str = "reject",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Sample completions of each prompt and keep the good ones."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "reject",
        metrics,
        **run,
        policy=policy,
        prompts=prompts,
        judge=judge,
        demonstrations=demonstrations,
    )
