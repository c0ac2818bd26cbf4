"""Kubeflow component of the stage `sft`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def sft(
    policy: Input[Model],
    demonstrations: Input[Dataset],
    trained: Output[Model],
    metrics: Output[Metrics],
    task: str = "sft",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Fine-tune a policy on demonstrations."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    run_component(
        "sft", metrics, **run, policy=policy, demonstrations=demonstrations, trained=trained
    )
