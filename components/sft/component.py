"""Kubeflow component of the stage `sft`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("sft"), install_kfp_package=False)
def sft(
    policy: Input[Model],
    demonstrations: Input[Dataset],
    trained: Output[Model],
    metrics: Output[Metrics],
    task: str = "sft",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Fine-tune a policy on demonstrations."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "sft", metrics, **run, policy=policy, demonstrations=demonstrations, trained=trained
    )
